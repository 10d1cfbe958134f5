/* Watchdog keep-alives for a process supervisor; mirrors device/runtime/application/signs.py. */
#ifndef EK_SIGNS_H
#define EK_SIGNS_H

/* Sends a keep-alive if one is due; does nothing without a supervisor. */
void ek_sign_of_life(void);

#endif
