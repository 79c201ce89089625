// Reads lines of `number first step` from tests/benchmarks/peers/peer.py.

import { readFileSync } from 'node:fs'
import { createInterface } from 'node:readline'
import { Queue } from 'bullmq'
import IORedis from 'ioredis'

const BATCH_SIZE = 500 // jobs in one call

const connection = new IORedis(process.env.BENCHMARK_STORE)
const queue = new Queue('bench', { connection })

const job = (due, timestamp) => ({
  name: 'start',
  data: { due: due / 1000 },
  opts: { timestamp, delay: Math.max(0, Math.round(due - timestamp)), removeOnComplete: true },
})

const send = async (number, first, step) => {
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
  await send(...line.split(' ').map(Number))
  writeJson('sent')
}
process.exit()
