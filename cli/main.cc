// `outboard`: the single program of the server side, with a subcommand for each role.
#include <fcntl.h>

#include <cstring>
#include <optional>
#include <string>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "wire/limits.h"
#include "worker/executor/executor_main.h"
#include "worker/tuning/search_main.h"

namespace {

using namespace outboard;
using namespace outboard::cli;

void AddReady(Command app, ServerFlags& flags) {
  app.Add("--ready-file", &flags.ready.file, "Write the address here once everything is up");
  app.Add("--ready-fd", &flags.ready.fd).Hidden();
  app.Add("--life-fd", &flags.life_fd).Hidden();
  app.Add("--parent-pid", &flags.parent_pid).Hidden();
}

// `otherwise`: what it is where the flag is not given.
void AddMemory(Command app, ServerFlags& flags, const std::string& otherwise) {
  app.AddBytes("--session-memory", &flags.session_memory_bytes,
               "Bytes that a session may hold, or 512MB, 8GB ... (default: " + otherwise + ")");
}

// `snapshots`: what --snapshot-every is where it is not given.
void AddGateway(Command app, ServerFlags& flags, const std::string& snapshots) {
  app.Add("--data", &flags.data, "Folder of accounts and blobs (default: $OUTBOARD_DATA)");
  app.AddBytes("--quota", &flags.quota_bytes,
               "Bytes that each tenant may keep in the store, or 512MB, 8GB ... (default: none)");
  app.Add("--price", &flags.price_per_hour_usd, "US dollars an hour for each device")
      .Between(0.0, 1e6)
      .ShowDefault();
  app.Add("--snapshot-every", &flags.snapshot_every_s,
          "Seconds between two snapshots of a session's state, from which it goes on when its "
          "worker is lost; 0: none")
      .Between(0, 86'400)
      .ShowDefault(snapshots);
}

int Main(int argc, char** argv) {
  // Before the flag parser: executors are started for sessions, and their start-up time counts.
  if (argc > 1 && std::strcmp(argv[1], "executor") == 0) {
    return worker::ExecutorMain(worker::ExecutorOptionsFromEnvironment());
  }

  if (argc > 1 && std::strcmp(argv[1], "search") == 0) {
    return worker::SearchMain(worker::SearchOptionsFromEnvironment());
  }

  Arguments app("outboard",
                "A cloud for tensors: gateway, workers, keys and bills.\n"
                "Exit codes: 0 done, 1 failed, 2 wrong usage or nobody could be reached.");
  app.SetVersion(std::string("outboard ") + kVersion + " (protocol " +
                 std::to_string(wire::kProtocolVersion) + ", graph schema " +
                 std::to_string(wire::kGraphSchemaVersion) + ")");
  app.RequireSubcommand();

  ServerFlags server;
  server.listen = "127.0.0.1:6667";
  AccountFlags account;

  Command up = app.Subcommand("up", "A gateway and workers on this machine, until Ctrl-C");
  up.Add("--workers", &server.workers, "Worker processes").Between(1, 64).ShowDefault();
  up.Add("--port", &server.port, "Port of the gateway; 0 takes a free one")
      .Between(0, 65535)
      .ShowDefault();
  up.Add("--host", &server.host, "Address to listen at").ShowDefault();
  up.Add("--no-auth", &server.no_auth, "Ask for no keys (loopback only)");
  AddMemory(up, server, "3/4 of the machine's, divided by all devices");
  AddGateway(up, server, "30");
  AddReady(up, server);

  Command gateway = app.Subcommand("gateway", "A gateway alone; workers join it");
  gateway.Add("--listen", &server.listen, "HOST:PORT or unix:/path").ShowDefault();
  gateway.Add(
      "--fleet-token-file", &server.fleet_token_file,
      "What workers must present (or $OUTBOARD_FLEET_TOKEN); without, only this machine's join");
  gateway.Add("--drain", &server.drain_s, "Seconds that sessions get to end when it stops")
      .Between(0, 3600)
      .ShowDefault();
  gateway.Add("--no-auth", &server.no_auth, "Ask for no keys (loopback and unix sockets only)");
  AddMemory(gateway, server, "what the worker says");
  AddGateway(gateway, server, "30");
  AddReady(gateway, server);

  Command worker = app.Subcommand("worker", "A worker that joins a gateway");
  worker.Add("--gateway", &server.gateway, "HOST:PORT or unix:/path of the gateway").Required();
  worker.Add("--name", &server.name, "For people (default: the host's name)");
  worker.Add("--devices", &server.devices, "Sessions at a time").Between(1, 64).ShowDefault();
  AddMemory(worker, server, "3/4 of the machine's, divided by --devices");
  worker.Add("--fleet-token-file", &server.fleet_token_file,
             "As the gateway's (or $OUTBOARD_FLEET_TOKEN)");
  AddReady(worker, server);

  Command serve =
      app.Subcommand("serve", "A gateway and a worker in one process, for one's own box");
  serve.Add("--listen", &server.listen, "HOST:PORT or unix:/path").ShowDefault();
  int serve_devices = 4;  // a program may hold several sessions
  serve.Add("--devices", &serve_devices, "Sessions at a time").Between(1, 64).ShowDefault();
  serve.Add("--no-auth", &server.no_auth, "Ask for no keys (loopback and unix sockets only)");
  serve.Add("--ephemeral", &server.ephemeral, "Remove the data folder at the end")
      .Needs("--no-auth");
  AddMemory(serve, server, "3/4 of the machine's, which the sessions share");
  AddGateway(serve, server, "0");
  AddReady(serve, server);
  for (Command command : {up, worker, serve})
    command.Add("--no-idle-search", &server.no_idle_search,
                "Do not look for faster kernels while no session works (docs/tuning.md)");
  for (Command command : {worker, serve}) command.Add("--quiet", &server.ready.quiet).Hidden();

  Command key = app.Subcommand("key", "Keys of a data folder");
  key.RequireSubcommand();
  Command create = key.Subcommand("create", "Make a key and print it, this once");
  create.Add("--name", &account.name, "For people").ShowDefault();
  create.Add("--tenant", &account.tenant, "Who pays; made if new").ShowDefault();
  Command list = key.Subcommand("list", "All keys, without their secrets");
  Command revoke = key.Subcommand("revoke", "End a key; its sessions end within seconds");
  revoke.Add("id", &account.id, "The key's id, from list").Required();
  Command usage = app.Subcommand("usage", "Seconds and amounts by session");
  usage.Add("--gateway", &account.gateway,
            "Ask this gateway, with $CLOUD_KEY, instead of reading --data");
  for (Command command : {create, list, revoke, usage}) {
    command.Add("--data", &account.data, "Folder of accounts and blobs (default: $OUTBOARD_DATA)");
  }
  for (Command command : {create, list, usage})
    command.Add("--json", &account.json, "For programs");

  StoreFlags stored;
  Command push = app.Subcommand("push", "Files into the cloud, under names");
  push.Add("file", &stored.files, "Safetensors files go array by array, others as they are")
      .Required();
  push.Add("--name", &stored.name, "Of one file (default: the file's own)");
  Command pull = app.Subcommand("pull", "What is under a name, as a file");
  pull.Add("name", &stored.names, "As store ls shows it").Required().Once();
  pull.Add("-o,--output", &stored.output, "The file (default: as it was called)");
  Command store = app.Subcommand("store", "What is in the cloud under names");
  store.RequireSubcommand();
  Command store_list = store.Subcommand("ls", "Names, with size and date");
  store_list.Add("prefix", &stored.prefix, "Only names that begin so");
  Command store_remove = store.Subcommand("rm", "Remove names, and what only they hold");
  store_remove.Add("name", &stored.names).Required();
  Command pin = store.Subcommand("pin", "Neither replace nor remove this name");
  Command unpin = store.Subcommand("unpin", "Let it go again");
  for (Command command : {pin, unpin}) command.Add("name", &stored.names).Required().Once();
  Command store_usage = store.Subcommand("du", "Bytes that are used, and the quota");
  for (Command command : {push, pull, store_list, store_remove, pin, unpin, store_usage}) {
    command.Add("--gateway", &stored.gateway,
                "HOST:PORT or unix:/path (default: $CLOUD_HOST); the key is $CLOUD_KEY");
  }
  for (Command command : {push, pull, store_list, store_remove, pin, unpin, store_usage})
    command.Add("--json", &stored.json, "For programs");

  CacheFlags tuned;
  Command cache = app.Subcommand("cache", "What workers here have measured of kernels");
  cache.RequireSubcommand();
  Command cache_list = cache.Subcommand("ls", "Each kernel: its baseline and its best time");
  Command explain = cache.Subcommand("explain", "Every choice that was measured of a kernel");
  explain.Add("kernel", &tuned.kernel, "The first digits of its id, from ls").Required();
  Command cache_export = cache.Subcommand("export", "Write all of it, a line a kernel");
  cache_export.Add("file", &tuned.file, "Default: standard output");
  Command cache_import = cache.Subcommand("import", "Add what another machine has exported");
  cache_import.Add("file", &tuned.file, "Default: standard input");
  Command forget = cache.Subcommand("rm", "Forget a kernel, so that it is searched again");
  forget.Add("kernel", &tuned.kernel, "The first digits of its id, from ls");
  forget.Add("--all", &tuned.all, "Forget all kernels");
  for (Command command : {cache_list, explain, cache_export, cache_import, forget})
    command.Add("--store", &tuned.store,
                "The file (default: $OUTBOARD_KERNEL_STORE, else "
                "kernels.db in ~/.cache/outboard)");

  std::string trace_file;
  Command trace = app.Subcommand(
      "trace", "What a program with PROFILE=FILE spent its time on (docs/latency.md)");
  trace.Add("file", &trace_file, "What it wrote").Required();

  VizFlags viz;
  Command see =
      app.Subcommand("viz", "A page that shows what rules did to each kernel (docs/viz.md)");
  see.Add("file", &viz.file, "What a worker with VIZ=1 wrote, or its folder").ExistingPath();
  see.Add("--port", &viz.port, "Port on this machine; 0 takes a free one")
      .Between(0, 65535)
      .ShowDefault();
  see.Add("--ready-file", &viz.ready.file, "Write the address here once it can be opened");
  see.Add("--life-fd", &viz.life_fd).Hidden();

  if (const std::optional<int> exit_code = app.Parse(argc, argv)) return *exit_code;
  for (int fd : {server.life_fd, server.ready.fd, viz.life_fd}) {
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);  // not inherited by children
  }
  if (create.Given()) return RunKeyCreate(account);
  if (list.Given()) return RunKeyList(account);
  if (revoke.Given()) return RunKeyRevoke(account);
  if (usage.Given()) return RunUsage(account);
  if (push.Given()) return RunPush(stored);
  if (pull.Given()) return RunPull(stored);
  if (store_list.Given()) return RunStoreList(stored);
  if (store_remove.Given()) return RunStoreRemove(stored);
  if (pin.Given()) return RunStorePin(stored, true);
  if (unpin.Given()) return RunStorePin(stored, false);
  if (store_usage.Given()) return RunStoreUsage(stored);
  if (cache_list.Given()) return RunCacheList(tuned);
  if (explain.Given()) return RunCacheExplain(tuned);
  if (cache_export.Given()) return RunCacheExport(tuned);
  if (cache_import.Given()) return RunCacheImport(tuned);
  if (forget.Given()) return RunCacheRemove(tuned);
  BlockSignals();
  if (see.Given()) return RunViz(viz);
  if (trace.Given()) return RunTrace(trace_file);
  if (up.Given()) return RunUp(server);
  if (gateway.Given()) return RunGateway(server);
  if (worker.Given()) return RunWorker(server);
  server.devices = serve_devices;
  return RunServe(server);
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
