// Processes jobs and records when each was due and started, as pairs of doubles.

import { openSync, writeSync } from 'node:fs'
import { Worker } from 'bullmq'
import IORedis from 'ioredis'

const CONCURRENCY = 50 // as the BullMQ documentation recommends

const connection = new IORedis(process.env.BENCHMARK_STORE, { maxRetriesPerRequest: null })
const file = openSync(`${process.env.BENCHMARK_STARTS}/${process.pid}`, 'a')

const start = async ({ data }) => {
  writeSync(file, new Float64Array([data.due, Date.now() / 1000]))
}

new Worker('bench', start, { connection, concurrency: CONCURRENCY })
