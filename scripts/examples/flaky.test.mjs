// Tests a handler in node:test, retries an hour apart and all: ../pg-temp run node --test flaky.test.mjs
import assert from 'node:assert';
import { spawnSync } from 'node:child_process';
import { test } from 'node:test';

const outbox = (...args) =>
	spawnSync('outbox', args, { cwd: new URL('.', import.meta.url), encoding: 'utf8' }).stdout;

test('it succeeds in the end, or gives up', () => {
	outbox('migrate');
	outbox('enqueue', 'flaky', '{"fail_times": 2}');
	const counts = JSON.parse(outbox('drain', '--skip-ahead', '--json'));
	assert.deepEqual([counts.succeeded, counts.attempts], [1, 3]);
	outbox('enqueue', 'flaky', '{"fail_times": 9}');
	assert.equal(JSON.parse(outbox('drain', '--skip-ahead', '--json')).dead, 1);
});
