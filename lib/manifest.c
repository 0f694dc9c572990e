#include "manifest.h"

#include <stdlib.h>
#include <string.h>

#include "folder.h"
#include "inifile.h"
#include "manifest_command.h"
#include "manifest_keys.h"
#include "policy.h"
#include "text.h"

#define JSON_MAX_BYTES ((size_t)4 << 20)

/* ---- sections and entries ------------------------------------------------------------ */

static int on_section(void *ctx, const char *name, struct err *err)
{
	struct manifest *manifest = ctx;
	const struct manifest_section *section = manifest_find_section(name);
	const char *code = manifest_code_of_section(name);

	if (section == NULL || (manifest->shared != NULL && !section->is_of_folder))
		return err_set(err, ERR_CONFIG, "there is no section [%s]", name);
	if (code == NULL)
		return 0;
	if (!outcome_is_code(code))
		return err_set(err, ERR_CONFIG, "\"%s\" is not a code", code);
	manifest->rule = policy_rule_of(&manifest->policy, code);
	return 0;
}

/* Notes the entry; false when it has been there before. */
static bool is_new(struct manifest *manifest, const char *section, const char *name)
{
	struct buf entry;
	bool found = false;

	buf_init(&entry, strlen(section) + strlen(name) + 2);
	buf_put_str(&entry, str_of(section));
	buf_put_char(&entry, ' ');
	buf_put_str(&entry, str_of(name));
	for (size_t i = 0; i < manifest->seen_count && !found; i++)
		found = strcmp(manifest->seen[i], buf_cstr(&entry)) == 0;
	if (!found) {
		manifest->seen = mem_realloc(manifest->seen, manifest->seen_count + 1,
			sizeof(*manifest->seen));
		manifest->seen[manifest->seen_count++] = mem_strdup(buf_cstr(&entry));
	}
	buf_release(&entry);
	return !found;
}

static int set(struct manifest *manifest, const char *section_name, const char *name,
	const char *value, struct err *err)
{
	const struct manifest_section *section = manifest_find_section(section_name);

	if (!section->is_repeatable && !is_new(manifest, section_name, name))
		return err_set(err, ERR_CONFIG, "it comes twice");
	if (section->keys != NULL)
		return manifest_set_key(manifest, section, name, value, err);
	return section->set(manifest, name, value, err);
}

static int on_entry(void *ctx, const char *section, const char *name, const char *value,
	struct err *err)
{
	struct manifest *manifest = ctx;

	if (section[0] == '\0')
		return err_set(err, ERR_CONFIG, "\"%s\" is not in a section", name);
	if (manifest->seen_count == MANIFEST_MAX_ENTRIES)
		return err_set(err, ERR_CONFIG, "more than %d entries", MANIFEST_MAX_ENTRIES);
	if (set(manifest, section, name, value, err) == 0)
		return 0;
	err_prefix(err, "[%s] %s", section, name);
	err->class = ERR_CONFIG; /* whatever a malformed number is elsewhere */
	return -1;
}

/* ---- a manifest ---------------------------------------------------------------------- */

static void manifest_release(struct manifest *manifest)
{
	for (size_t i = 0; i < manifest->seen_count; i++)
		free(manifest->seen[i]);
	free(manifest->seen);
	free(manifest->user);
	free(manifest->home);
	policy_release(&manifest->policy);
}

static void set_default_variable(struct handler *handler, const char *name,
	const char *value)
{
	if (!handler_has_variable(handler, name))
		handler_set_variable(handler, name, value);
}

/* What follows from the entries together, and the defaults that depend on the file's name. */
static int complete(struct manifest *manifest, const char *stem, struct err *err)
{
	struct handler *handler = manifest->handler;
	struct buf json;

	if (!text_is_kind(handler->kind, strlen(handler->kind)))
		return err_set(err, ERR_CONFIG, "it names no kind, and \"%s\" is none",
			handler->kind);
	if (handler->path == NULL &&
		manifest_set_executable(handler, manifest->folder, stem, err) != 0)
		return -1;
	if (manifest->user != NULL) {
		set_default_variable(handler, "USER", manifest->user);
		set_default_variable(handler, "LOGNAME", manifest->user);
		set_default_variable(handler, "HOME", manifest->home);
	}
	buf_init(&json, JSON_MAX_BYTES);
	int result = policy_put(&json, &manifest->policy);
	if (result != 0)
		err_set(err, ERR_CONFIG, "what it says is too large");
	else
		handler->manifest = mem_strdup(buf_cstr(&json));
	buf_release(&json);
	return result;
}

static char *path_of(const char *folder, const char *name)
{
	struct buf path;

	buf_init(&path, strlen(folder) + strlen(name) + 2);
	buf_printf(&path, "%s/%s", folder, name);
	char *copy = mem_strdup(buf_cstr(&path));
	buf_release(&path);
	return copy;
}

static int read_entries(struct manifest *manifest, const char *path, struct str text,
	struct err *err)
{
	const struct inifile_reader reader = {
		.section = on_section,
		.entry = on_entry,
		.ctx = manifest,
	};

	policy_init(&manifest->policy);
	return inifile_parse(text, path, &reader, err);
}

int manifest_parse(const char *folder, const char *name, struct str text,
	struct handler *handler, struct err *err)
{
	struct manifest manifest = {.folder = folder, .handler = handler};
	char *path = path_of(folder, name);
	size_t length = strlen(name), ending = strlen(MANIFEST_ENDING);
	char *stem = mem_strndup(name, length > ending ? length - ending : 0);

	handler_init(handler, stem, name);
	int result = read_entries(&manifest, path, text, err);
	if (result == 0 && complete(&manifest, stem, err) != 0)
		result = err_prefix(err, "%s", path);
	if (result != 0)
		handler_release(handler);
	manifest_release(&manifest);
	free(stem);
	free(path);
	return result;
}

int manifest_load(const char *folder, const char *name, struct handler *handler,
	struct err *err)
{
	struct buf text;

	*handler = (struct handler){0};
	buf_init(&text, MANIFEST_MAX_BYTES);
	int result = folder_read(folder, name, &text, err);
	if (result == 0)
		result = manifest_parse(folder, name, (struct str){buf_cstr(&text), text.len},
			handler, err);
	buf_release(&text);
	return result;
}

int manifest_load_redactions(const char *folder, struct redactions *redactions,
	struct err *err)
{
	struct manifest manifest = {.folder = folder, .shared = redactions};
	struct buf text;

	buf_init(&text, MANIFEST_MAX_BYTES);
	int result = folder_read(folder, MANIFEST_OF_FOLDER, &text, err);
	if (result == 0) {
		char *path = path_of(folder, MANIFEST_OF_FOLDER);
		result = read_entries(&manifest, path, (struct str){buf_cstr(&text), text.len},
			err);
		free(path);
	}
	buf_release(&text);
	manifest_release(&manifest);
	return result;
}
