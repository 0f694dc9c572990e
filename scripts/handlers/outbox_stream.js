'use strict'
// Stream handlers in Node: require this file, which lies beside the handler, and call run().
//
//	const { run, Outcome } = require('./outbox_stream.js')
//	run(async (job, { signal }) => ({ sent: await send(job.payload, signal) }))
//
// What it returns is the response; what it throws makes the job tried again. To say more, it
// returns or throws an Outcome. Several jobs are handled at once; the AbortSignal of one is
// aborted when it is cancelled. console.log goes to the log.

// new Outcome('retry', { code: 'busy', after: '60s' }), or fail, cancel (reason), ok (commit)
class Outcome extends Error {
	constructor(outcome, members) {
		super(outcome)
		this.members = { ...members, outcome }
	}
}

class Context {
	#controller // costs something: only for those who ask
	get signal() { return (this.#controller ??= new AbortController()).signal }
	cancel() { this.#controller?.abort() }
}

const write = process.stdout.write.bind(process.stdout)
const running = new Map() // id -> Context
let answers = []

// All answers of one turn of the event loop leave with one write.
function flush() {
	write(answers.join(''))
	answers = []
}

async function take(handle, message) {
	const { id, cancel } = message, context = new Context()
	if (cancel) return running.get(cancel)?.cancel()
	running.set(id, context)
	const answer = await (async () => handle(message, context))().then(
		result => result instanceof Outcome ? result.members : { response: result },
		error => error instanceof Outcome ? error.members
			: { outcome: 'retry', code: 'exception', error: String(error?.stack ?? error) })
	running.delete(id)
	if (answers.push(JSON.stringify({ id, ...answer }) + '\n') === 1) setImmediate(flush)
}

function run(handle) {
	let held = ''
	console.log = console.info = console.error // nothing may come between the answers
	write('{"cancel":true}\n') // tell of cancels
	process.stdin.setEncoding('utf8').on('data', chunk => {
		const lines = (held + chunk).split('\n') // not readline, for which U+2028 ends a line
		held = lines.pop()
		for (const line of lines) take(handle, JSON.parse(line))
	})
}

module.exports = { run, Outcome }
