'use strict'
// Stream handlers in Node: require this file, which lies beside the handler, and call run().
//
//	const { run, Outcome } = require('./outbox_stream.js')
//	run(async (job, signal) => ({ sent: await send(job.payload, { signal }) }))
//
// What it returns is the response; what it throws makes the job tried again. To say more, it
// returns or throws an Outcome. Several jobs are handled at once; the signal is aborted when
// one is cancelled. console.log goes to the log.
// new Outcome('retry', { code: 'busy', after: '60s' }), or fail, cancel (reason), ok (commit)
class Outcome extends Error {
	constructor(outcome, members = {}) {
		super(outcome)
		this.members = { ...members, outcome }
	}
}

const write = process.stdout.write.bind(process.stdout)
const running = new Map() // id -> AbortController
let answers = []

// All answers of one turn of the event loop leave with one write.
function answer(id, members) {
	running.delete(id)
	if (answers.length === 0)
		setImmediate(() => {
			write(answers.join(''))
			answers = []
		})
	answers.push(JSON.stringify({ id, ...members }) + '\n')
}

const membersOf = result =>
	result instanceof Outcome ? result.members : { response: result }

async function take(handle, message) {
	if (message.cancel) return running.get(message.cancel)?.abort()
	const controller = new AbortController()
	running.set(message.id, controller)
	try {
		answer(message.id, membersOf(await handle(message, controller.signal)))
	} catch (error) {
		answer(message.id, error instanceof Outcome ? error.members
			: { outcome: 'retry', code: 'exception', error: String(error?.stack ?? error) })
	}
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
