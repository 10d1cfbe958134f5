/* Watchdog keep-alives for a process supervisor; mirrors device/runtime/application/sd_notify.py.
 */
#ifndef EK_SD_NOTIFY_H
#define EK_SD_NOTIFY_H

/* Sends a keep-alive if one is due; does nothing without a supervisor. */
void ek_send_heartbeat(void);

#endif
