/* Signs of life for whoever supervises the process, as device/runtime/application/signs.py sends
 * them. */
#ifndef EK_SIGNS_H
#define EK_SIGNS_H

/* Says that the process lives, if it is time to; nobody supervising is no error. */
void ek_sign_of_life(void);

#endif
