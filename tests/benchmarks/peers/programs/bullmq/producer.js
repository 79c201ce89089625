// Reads lines of `number first step mode` from tests/benchmarks/peers/peer.py.

import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { Queue } from 'bullmq'
import IORedis from 'ioredis'

const BATCH_SIZE = 500 // jobs in one call
const MAX_CALLS = 400 // calls without an answer

const connection = new IORedis(process.env.BENCHMARK_STORE)
const queue = new Queue('bench', { connection })

const job = (due, timestamp) => ({
  name: 'start',
  data: { due: due / 1000 },
  opts: { timestamp, delay: Math.max(0, Math.round(due - timestamp)), removeOnComplete: true },
})

const sendEach = async (number) => {
  const calls = []
  for (let each = 0; each < number; each++) {
    const now = Date.now()
    const { name, data, opts } = job(now, now)
    calls.push(queue.add(name, data, opts))
    if (calls.length === MAX_CALLS) await Promise.all(calls.splice(0))
  }
  await Promise.all(calls)
}

const sendBulk = async (number, first, step) => {
  for (let from = 0; from < number; from += BATCH_SIZE) {
    const now = Date.now()
    const due = (each) => (first ? (first + each * step) * 1000 : now)
    const length = Math.min(BATCH_SIZE, number - from)
    await queue.addBulk(Array.from({ length }, (_, each) => job(due(from + each), now)))
  }
}

const writeJson = (value) => console.log(JSON.stringify(value))

const version = (name) => JSON.parse(readFileSync(`node_modules/${name}/package.json`)).version
const redis = /redis_version:(\S+)/.exec(await connection.info('server'))[1]
writeJson({ bullmq: version('bullmq'), ioredis: version('ioredis'), node: process.versions.node, redis })
for await (const line of createInterface({ input: process.stdin })) {
  const [number, first, step, mode] = line.split(' ')
  if (mode === 'single') await sendEach(Number(number))
  else await sendBulk(Number(number), Number(first), Number(step))
  writeJson('sent')
}
process.exit()
