#include "pace.h"

#include "clock.h"

#define MOMENT_US INT64_C(20000)

void pace_init(struct pace *pace)
{
	*pace = (struct pace){.measured_us = clock_us()};
}

void pace_note_end(struct pace *pace)
{
	pace->ended++;
}

void pace_turn(struct pace *pace)
{
	int64_t elapsed_us = clock_us() - pace->measured_us;

	if (elapsed_us < MOMENT_US)
		return;
	pace->ahead = (size_t)((int64_t)pace->ended * MOMENT_US / elapsed_us);
	pace->ended = 0;
	pace->measured_us += elapsed_us;
}
