#include "lease.h"

#define DB_NOW_MAX_US (INT64_C(1) << 60) /* past the year 38000 */

void lease_set_length(struct lease *lease, int64_t length_ms)
{
	lease->length_us = length_ms * 1000;
}

void lease_note_beat(struct lease *lease, int64_t count, int64_t sent_us)
{
	lease->beats[count % LEASE_BEATS].count = count;
	lease->beats[count % LEASE_BEATS].sent_us = sent_us;
}

bool lease_confirm_beat(struct lease *lease, int64_t count)
{
	if (count <= 0 || lease->beats[count % LEASE_BEATS].count != count)
		return false;
	lease_begin(lease, lease->beats[count % LEASE_BEATS].sent_us);
	return true;
}

void lease_begin(struct lease *lease, int64_t sent_us)
{
	if (sent_us > lease->from_us)
		lease->from_us = sent_us;
}

void lease_give_up(struct lease *lease)
{
	lease->from_us = 0;
}

int64_t lease_end_us(const struct lease *lease)
{
	return lease->from_us == 0 ? 0 : lease->from_us + lease->length_us / 10 * 9;
}

bool lease_is_valid(const struct lease *lease, int64_t now_us)
{
	return now_us < lease_end_us(lease);
}

void lease_set_clock(struct lease *lease, int64_t db_now_us, int64_t now_us)
{
	if (db_now_us <= 0 || db_now_us > DB_NOW_MAX_US)
		return;
	lease->db_now_us = db_now_us;
	lease->db_at_us = now_us;
}

int64_t lease_db_now_us(const struct lease *lease, int64_t now_us)
{
	return lease->db_now_us == 0 ? 0 : lease->db_now_us + now_us - lease->db_at_us;
}

void lease_note_db_time(struct lease *lease, int64_t db_us, int64_t now_us)
{
	if (lease->db_now_us != 0 && db_us > lease_db_now_us(lease, now_us))
		lease_set_clock(lease, db_us, now_us);
}
