/*
 * Runs a fuzz target over the files of its committed corpus, as an ordinary test. Include
 * the target before this.
 */
#ifndef OUTBOX_TESTS_FUZZ_REPLAY_H
#define OUTBOX_TESTS_FUZZ_REPLAY_H

#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

static int replay_file(const char *directory, const char *name)
{
	char path[512];
	snprintf(path, sizeof path, "%s/%s", directory, name);
	FILE *file = fopen(path, "rb");
	if (!file || fseek(file, 0, SEEK_END) < 0)
		return -1;
	long size = ftell(file);
	rewind(file);
	/* Exactly as large as the input, so that a sanitizer sees a read past it. */
	uint8_t *bytes = malloc(size > 0 ? (size_t)size : 1);
	int rc = -1;
	if (bytes && size >= 0 && fread(bytes, 1, (size_t)size, file) == (size_t)size)
		rc = LLVMFuzzerTestOneInput(bytes, (size_t)size);
	free(bytes);
	fclose(file);
	return rc;
}

/* Returns the number of inputs replayed, or -1 when one could not be read. */
static int replay_corpus(const char *directory)
{
	DIR *corpus = opendir(directory);
	const struct dirent *entry;
	int count = 0;

	if (!corpus)
		return -1;
	while (count >= 0 && (entry = readdir(corpus))) {
		if (entry->d_name[0] != '.')
			count = replay_file(directory, entry->d_name) < 0 ? -1 : count + 1;
	}
	closedir(corpus);
	return count;
}

#endif
