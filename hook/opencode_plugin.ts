// @ts-nocheck
// knoot's plugin for opencode. It asks `knoot hook opencode` about prompts and tool calls, and does nothing where knoot is not
// installed. `knoot init --agent opencode` writes this file and `knoot init --uninstall` removes it, if it is as it was written.
import { spawn } from "node:child_process"

export const Knoot = async ({ client, directory }) => {
  const sessions = new Map() // by id: {found, parent, directory, source, begun}
  const notes = new Map() // by call: what was said before it, to be read with its result
  const pending = new Set()

  const known = (id, info) => {
    const s = sessions.get(id) ?? { source: "resume" }
    if (info) Object.assign(s, { found: true, parent: info.parentID, directory: info.directory })
    sessions.set(id, s)
    return s
  }
  const look = async (id) => {
    const s = sessions.get(id)
    return s?.found ? s : known(id, (await client.session.get({ path: { id } }).catch(() => undefined))?.data)
  }
  // find asks about a session, and those above it, each time until there is an answer.
  const find = async (id) => {
    const s = await look(id)
    for (let n = 0, above = s.parent; n < 100 && above; n++) above = (await look(above)).parent
    return s
  }
  const rootOf = (id) => {
    for (let n = 0; n < 100 && sessions.get(id)?.parent; n++) id = sessions.get(id).parent
    return id
  }

  // run never fails and ends within 5 s: what knoot has to say, {} for nothing.
  const run = (payload) =>
    new Promise((resolve) => {
      if (process.env.KNOOT === "off") return resolve({})
      let child, limit
      let out = ""
      const done = () => {
        clearTimeout(limit)
        try {
          resolve(JSON.parse(out) ?? {})
        } catch {
          resolve({})
        }
      }
      try {
        child = spawn(process.env.KNOOT_BIN || "knoot", ["hook", "opencode"], {
          stdio: ["pipe", "pipe", "ignore"],
          env: { ...process.env, OPENCODE_PID: String(process.pid) },
        })
        limit = setTimeout(() => (child.kill("SIGKILL"), resolve({})), 5000)
        child.on("error", done)
        child.on("close", done)
        child.stdin.on("error", () => {})
        child.stdout.setEncoding("utf8").on("data", (text) => (out += text))
        child.stdin.end(JSON.stringify(payload))
      } catch {
        done()
      }
    })
  const ask = async (event, id, more) => {
    const s = await find(id)
    const root = rootOf(id)
    const asked = run({
      hook_event_name: event, session_id: root, ...(root !== id && { agent_id: id }), cwd: s.directory ?? directory, ...more,
    })
    pending.add(asked)
    const answer = await asked
    pending.delete(asked)
    return answer
  }

  return {
    event: async ({ event }) => {
      const { sessionID, info } = event.properties ?? {}
      const id = sessionID ?? info?.id
      switch (event.type) {
        case "session.created":
          known(id, info).source = "startup"
          break
        case "session.compacted":
          Object.assign(known(id), { source: "compact", begun: false })
          break
        case "session.idle": {
          const s = await find(id)
          if (s.begun) await ask(s.parent ? "SubagentStop" : "Stop", id)
          break
        }
        case "session.deleted":
          if (sessions.get(id)?.begun && !sessions.get(id).parent) await ask("SessionEnd", id, { reason: "deleted" })
          sessions.delete(id)
      }
    },
    "chat.message": async ({ sessionID }, { message, parts }) => {
      const s = await find(sessionID)
      const prompt = parts.filter((p) => p.type === "text" && !p.synthetic).map((p) => p.text).join("\n")
      const told = []
      if (!s.begun) {
        s.begun = true
        told.push(await ask(s.parent ? "SubagentStart" : "SessionStart", sessionID, { source: s.source }))
      }
      if (!s.parent) told.push(await ask("UserPromptSubmit", sessionID, { prompt }))
      for (const { context } of told) {
        if (!context) continue
        const id = (parts.at(-1)?.id ?? "prt_knoot" + Date.now()) + "k" // parts are read in the order of their ids
        parts.push({ id, sessionID, messageID: message.id, type: "text", text: context, synthetic: true })
      }
    },
    "tool.execute.before": async ({ tool, sessionID, callID }, { args }) => {
      const { deny, context } = await ask("PreToolUse", sessionID, { tool_name: tool, tool_use_id: callID, tool_input: args })
      if (deny) throw new Error(context ? deny + "\n\n" + context : deny)
      if (context) notes.set(callID, context)
    },
    "tool.execute.after": async ({ tool, sessionID, callID, args }, output) => {
      const { context } = await ask("PostToolUse", sessionID, { tool_name: tool, tool_use_id: callID, tool_input: args })
      const said = [notes.get(callID), context].filter(Boolean).join("\n\n")
      notes.delete(callID)
      if (said && typeof output?.output === "string") output.output += "\n\n" + said
    },
    dispose: async () => {
      await Promise.all(pending)
      for (const [id, s] of sessions) if (s.begun && !s.parent) await ask("SessionEnd", id, { reason: "exit" })
    },
  }
}
