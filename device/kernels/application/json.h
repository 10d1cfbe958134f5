/* Reads JSON that edgekit wrote: values are known to be well-formed. */
#ifndef EK_JSON_H
#define EK_JSON_H

/* The character after the value at `at`. */
const char *ek_json_end(const char *at);

/* The first element of the list at `list`, and the one after `element`; NULL if there is none. */
const char *ek_json_first(const char *list);
const char *ek_json_next(const char *element);

/* The string at `at` in UTF-8, to be freed by the caller; NULL if there is no memory. */
char *ek_json_text(const char *at);

#endif
