// Connects the official TypeScript client and does what a test tells it, a line of JSON at a time:
//
//   node typescript.cjs FOLDER v1|v2 [auto]
//
// FOLDER holds node_modules. v1 is @modelcontextprotocol/sdk, v2 @modelcontextprotocol/client; with auto the latter finds out which
// protocol the server speaks, else it speaks that with sessions. A line is {"do": …}, its answer {"is": …} or {"error": text}.
const { createRequire } = require('node:module')
const path = require('node:path')
const readline = require('node:readline')

const [folder, line, era] = process.argv.slice(2)
const load = createRequire(path.join(folder, 'package.json'))
const { Client, StreamableHTTPClientTransport } = line === 'v2'
  ? load('@modelcontextprotocol/client')
  : { ...load('@modelcontextprotocol/sdk/client/index.js'), ...load('@modelcontextprotocol/sdk/client/streamableHttp.js') }

let client, transport
const does = {
  async connect ({ url, headers }) {
    transport = new StreamableHTTPClientTransport(new URL(url), { requestInit: { headers } })
    client = new Client({ name: 'foreign', version: '1' }, era ? { versionNegotiation: { mode: era } } : {})
    await client.connect(transport)
    return line === 'v2' ? client.getNegotiatedProtocolVersion() : transport.protocolVersion
  },
  async list () { return (await client.listTools()).tools.map(tool => tool.name) },
  async call ({ name, arguments: given }) {
    const result = await client.callTool({ name, arguments: given })
    return { text: result.content.map(part => part.text).join('\n'), failed: result.isError === true }
  },
  async session () { return transport.sessionId ?? '' },
  async listen () { return (await client.listen({ toolsListChanged: true })).closed },
  async close () { await client.close(); return true }
}

;(async () => {
  for await (const text of readline.createInterface({ input: process.stdin })) {
    const asked = JSON.parse(text)
    let answer
    try {
      answer = { is: await does[asked.do](asked) }
    } catch (error) {
      answer = { error: String(error) }
    }
    process.stdout.write(JSON.stringify(answer) + '\n')
  }
  process.exit(0) // streams that are open would keep it
})()
