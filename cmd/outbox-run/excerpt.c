#include "excerpt.h"

#include <inttypes.h>

#include "text.h"

#define MARKER_BYTES ((size_t)64) /* room for "[… N bytes dropped …]" */
#define MARGIN_BYTES \
	((size_t)1024)         /* a match that begins before a cut may end so far behind */
#define GROWTH ((size_t)3) /* a byte may become U+FFFD … */
#define REDACTED_GROWTH ((size_t)10) /* … or REDACT_REPLACEMENT */

static size_t without_marker(int64_t max_bytes)
{
	size_t bytes = max_bytes < 0 ? 0 : (size_t)max_bytes;

	return bytes > MARKER_BYTES ? bytes - MARKER_BYTES : 0;
}

struct excerpt excerpt_of_response(int64_t max_bytes)
{
	size_t bytes = without_marker(max_bytes);

	return (struct excerpt){bytes - bytes / 4, bytes / 4};
}

struct excerpt excerpt_of_error(int64_t max_bytes)
{
	size_t bytes = without_marker(max_bytes);

	return (struct excerpt){bytes / 4, bytes - bytes / 4};
}

struct excerpt excerpt_of_message(int64_t max_bytes)
{
	return (struct excerpt){without_marker(max_bytes), 0};
}

struct excerpt excerpt_of_tail(int64_t max_bytes)
{
	return (struct excerpt){0, without_marker(max_bytes)};
}

void excerpt_init_capture(struct capture *capture, const struct excerpt *excerpt,
	const struct handler *handler)
{
	size_t margin = handler_redacts(handler) ? MARGIN_BYTES : 0;

	capture_init(capture, excerpt->head_bytes + margin, excerpt->tail_bytes + margin);
}

/* ---- cleaning ------------------------------------------------------------------------ */

/* The shell's habit, which says nothing, as in $(...). */
static struct str without_newline(struct str text)
{
	if (text.n > 0 && text.s[text.n - 1] == '\n')
		text.n--;
	return text;
}

/* Initialises `clean` with the text, storable and redacted. */
static void clean_init(struct buf *clean, struct str raw, const struct handler *handler)
{
	struct buf storable;

	buf_init(clean, raw.n * GROWTH);
	text_put_storable(clean, raw.s, raw.n, clean->max);
	if (!handler_redacts(handler))
		return;
	buf_init(&storable, clean->len * REDACTED_GROWTH);
	buf_put(&storable, clean->data, clean->len);
	buf_release(clean);
	if (handler->folder_redactions != NULL)
		redactions_apply(handler->folder_redactions, &storable);
	redactions_apply(&handler->redactions, &storable);
	/* A pattern is about bytes and may have taken half a character. */
	buf_init(clean, storable.len * GROWTH);
	text_put_storable(clean, storable.data, storable.len, clean->max);
	buf_release(&storable);
}

/* ---- cutting ------------------------------------------------------------------------- */

static void put_head(struct buf *out, const struct buf *text, size_t max_bytes)
{
	buf_put(out, text->data, text_clip(text->data, text->len, max_bytes));
}

static void put_tail(struct buf *out, const struct buf *text, size_t max_bytes)
{
	size_t start = text->len > max_bytes ? text->len - max_bytes : 0;

	while (start < text->len && (text->data[start] & 0xc0) == 0x80)
		start++; /* inside a character */
	buf_put(out, text->data + start, text->len - start);
}

static void put_marker(struct buf *out, int64_t cut)
{
	buf_printf(out, "\n[… %" PRId64 " bytes dropped …]\n", cut);
}

static int64_t put_whole(struct buf *out, struct str raw, const struct excerpt *excerpt,
	const struct handler *handler)
{
	size_t most = excerpt->head_bytes + excerpt->tail_bytes;
	size_t cut = 0;
	struct buf clean;

	clean_init(&clean, without_newline(raw), handler);
	if (clean.len <= most) {
		buf_put(out, clean.data, clean.len);
	} else {
		cut = raw.n > most ? raw.n - most : clean.len - most;
		put_head(out, &clean, excerpt->head_bytes);
		put_marker(out, (int64_t)cut);
		put_tail(out, &clean, excerpt->tail_bytes);
	}
	buf_release(&clean);
	return (int64_t)cut;
}

/* Something between head and tail was dropped while it was captured. */
static int64_t put_ends(struct buf *out, const struct capture *capture,
	const struct excerpt *excerpt, const struct handler *handler)
{
	int64_t cut = capture->total - (int64_t)(excerpt->head_bytes + excerpt->tail_bytes);
	struct buf raw_tail, head, tail;

	buf_init(&raw_tail, capture->tail_max);
	capture_put_tail(capture, &raw_tail);
	clean_init(&head, (struct str){capture->head.data, capture->head.len}, handler);
	clean_init(&tail, without_newline((struct str){raw_tail.data, raw_tail.len}),
		handler);
	put_head(out, &head, excerpt->head_bytes);
	put_marker(out, cut);
	put_tail(out, &tail, excerpt->tail_bytes);
	buf_release(&raw_tail);
	buf_release(&head);
	buf_release(&tail);
	return cut;
}

int64_t excerpt_put_capture(struct buf *out, const struct capture *capture,
	const struct excerpt *excerpt, const struct handler *handler)
{
	struct buf raw;

	if (capture_dropped(capture) > 0)
		return put_ends(out, capture, excerpt, handler);
	buf_init(&raw, capture->head_max + capture->tail_max);
	buf_put(&raw, capture->head.data, capture->head.len);
	capture_put_tail(capture, &raw);
	int64_t cut = put_whole(out, (struct str){raw.data, raw.len}, excerpt, handler);
	buf_release(&raw);
	return cut;
}

int64_t excerpt_put_text(struct buf *out, struct str text, const struct excerpt *excerpt,
	const struct handler *handler)
{
	return put_whole(out, text, excerpt, handler);
}
