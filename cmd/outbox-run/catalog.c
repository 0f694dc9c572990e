#include "catalog.h"

#include <inttypes.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "folder.h"
#include "log.h"

struct catalog_set {
	struct handlers handlers;
	struct catalog_set *older;
};

/* ---- users --------------------------------------------------------------------------- */

static bool may_change_user(void)
{
	struct __user_cap_header_struct header = {.version = _LINUX_CAPABILITY_VERSION_3};
	struct __user_cap_data_struct data[_LINUX_CAPABILITY_U32S_3];
	const unsigned needed = (1U << CAP_SETUID) | (1U << CAP_SETGID);

	return syscall(SYS_capget, &header, data) == 0 &&
		(data[0].effective & needed) == needed;
}

/* Better refused now than at each attempt. */
static int check_users(struct handlers *handlers, struct err *err)
{
	if (may_change_user())
		return 0;
	for (size_t i = 0; i < handlers->count; i++) {
		struct handler *handler = &handlers->items[i];
		if (handler->set_user && handler->uid != geteuid())
			return err_set(err, ERR_CONFIG,
				"\"%s\" names a user that this process, which is not root, cannot become",
				handler->file);
		handler->set_user = false;
	}
	return 0;
}

/* ---- sets ---------------------------------------------------------------------------- */

static void log_handlers(const struct handlers *handlers, const char *folder)
{
	for (size_t i = 0; i < handlers->count; i++)
		log_event(LOG_DEBUG, "handler", LOG_TEXT("kind", handlers->items[i].kind),
			LOG_TEXT("path", handlers->items[i].path));
	log_event(handlers->count > 0 ? LOG_INFO : LOG_WARNING, "handlers_loaded",
		LOG_TEXT("folder", folder), LOG_INT("count", handlers->count));
}

int catalog_load(struct catalog *catalog, const char *folder, const char *lane,
	struct err *err)
{
	struct handlers handlers;

	if (handlers_load(folder, &handlers, err) != 0)
		return -1;
	handlers_keep_lane(&handlers, lane);
	if (check_users(&handlers, err) != 0) {
		handlers_release(&handlers);
		return -1;
	}
	log_handlers(&handlers, folder);
	struct catalog_set *set = mem_alloc(1, sizeof(*set));
	*set = (struct catalog_set){handlers, catalog->newest};
	catalog->newest = set;
	return 0;
}

const struct handlers *catalog_newest(const struct catalog *catalog)
{
	return &catalog->newest->handlers;
}

static void set_free(struct catalog_set *set)
{
	handlers_release(&set->handlers);
	free(set);
}

void catalog_prune(struct catalog *catalog, catalog_use_fn *is_used, void *ctx)
{
	struct catalog_set **link = &catalog->newest->older;

	while (*link != NULL) {
		struct catalog_set *set = *link;
		if (is_used(ctx, &set->handlers)) {
			link = &set->older;
			continue;
		}
		*link = set->older;
		set_free(set);
	}
}

void catalog_release(struct catalog *catalog)
{
	while (catalog->newest != NULL) {
		struct catalog_set *set = catalog->newest;
		catalog->newest = set->older;
		set_free(set);
	}
}

/* ---- --check ------------------------------------------------------------------------- */

enum { COLUMNS = 6, CELL_BYTES = 32 };

static const char *const titles[COLUMNS] = {"kind", "mode", "lane", "version", "timeout",
	"command"};

struct row {
	const char *cells[COLUMNS];
	char version[CELL_BYTES], timeout[CELL_BYTES];
	struct buf command;
};

static void put_argument(struct buf *command, const char *argument)
{
	const char *quote = strpbrk(argument, " \t\n\"") != NULL    ? "'"
		: argument[0] == '\0' || strchr(argument, '\'') != NULL ? "\""
																: "";

	if (command->len > 0)
		buf_put_char(command, ' ');
	buf_printf(command, "%s%s%s", quote, argument, quote);
}

/* folder: where the command is; not shown. */
static void row_init(struct row *row, const struct handler *handler, const char *folder)
{
	bool is_whole = handler->timeout_ms % 1000 == 0;
	const char *file = handler->argv[0] + strlen(folder) + 1;

	buf_init(&row->command, (size_t)1 << 20);
	put_argument(&row->command, file);
	for (char **argument = handler->argv + 1; *argument != NULL; argument++)
		put_argument(&row->command, *argument);
	snprintf(row->version, CELL_BYTES, "%" PRId64, handler->version);
	snprintf(row->timeout, CELL_BYTES, "%" PRId64 "%s",
		handler->timeout_ms / (is_whole ? 1000 : 1), is_whole ? "s" : "ms");
	const char *cells[COLUMNS] = {handler->kind, handler_mode_name(handler->mode),
		handler->lane, row->version, row->timeout, buf_cstr(&row->command)};
	memcpy(row->cells, cells, sizeof(cells));
}

static void print_row(const char *const cells[COLUMNS], const int widths[COLUMNS])
{
	for (int i = 0; i < COLUMNS - 1; i++)
		printf("%-*s  ", widths[i], cells[i]);
	printf("%s\n", cells[COLUMNS - 1]);
}

static void print_table(const struct handlers *handlers, const char *folder)
{
	struct row *rows = mem_alloc(handlers->count + 1, sizeof(*rows));
	int widths[COLUMNS];

	for (int i = 0; i < COLUMNS; i++)
		widths[i] = (int)strlen(titles[i]);
	for (size_t r = 0; r < handlers->count; r++) {
		row_init(&rows[r], &handlers->items[r], folder);
		for (int i = 0; i < COLUMNS; i++)
			if ((int)strlen(rows[r].cells[i]) > widths[i])
				widths[i] = (int)strlen(rows[r].cells[i]);
	}
	print_row(titles, widths);
	for (size_t r = 0; r < handlers->count; r++) {
		print_row(rows[r].cells, widths);
		buf_release(&rows[r].command);
	}
	free(rows);
}

int catalog_check(const char *directory, struct err *err)
{
	char folder[PATH_MAX];
	struct handlers handlers;

	if (folder_open(directory, folder, err) != 0 ||
		handlers_load(folder, &handlers, err) != 0)
		return -1;
	print_table(&handlers, folder);
	handlers_release(&handlers);
	return 0;
}
