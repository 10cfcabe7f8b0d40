// `outboard`: the one program of the cloud's side.
#include <fcntl.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <string>

#include "cli/accounts.h"
#include "cli/cache.h"
#include "cli/common.h"
#include "cli/servers.h"
#include "cli/store.h"
#include "cli/trace.h"
#include "cli/viz.h"
#include "wire/limits.h"
#include "worker/executor/executor_main.h"
#include "worker/tuning/search_main.h"

namespace {

using namespace outboard;
using namespace outboard::cli;

constexpr int kUsage = 2;

void AddReady(CLI::App* app, ServerFlags& flags) {
  app->add_option("--ready-file", flags.ready.file, "Write the address here once everything is up");
  app->add_option("--ready-fd", flags.ready.fd)->group("");
  app->add_option("--life-fd", flags.life_fd)->group("");
  app->add_option("--parent-pid", flags.parent_pid)->group("");
}

// `otherwise`: what it is where the flag is not given.
void AddMemory(CLI::App* app, ServerFlags& flags, const std::string& otherwise) {
  app->add_option("--session-memory", flags.session_memory_bytes,
                  "Bytes that a session may hold, or 512MB, 8GB ... (default: " + otherwise + ")")
      ->transform(CLI::AsSizeValue(false));
}

// `snapshots`: what --snapshot-every is where it is not given.
void AddGateway(CLI::App* app, ServerFlags& flags, const std::string& snapshots) {
  app->add_option("--data", flags.data, "Folder of accounts and blobs (default: $OUTBOARD_DATA)");
  app->add_option("--quota", flags.quota_bytes,
                  "Bytes that each tenant may keep in the store, or 512MB, 8GB ... (default: none)")
      ->transform(CLI::AsSizeValue(false));
  app->add_option("--price", flags.price_per_hour_usd, "US dollars an hour for each device")
      ->check(CLI::Range(0.0, 1e6))
      ->capture_default_str();
  app->add_option(
         "--snapshot-every", flags.snapshot_every_s,
         "Seconds between two snapshots of a session's state, from which it goes on when its "
         "worker is lost; 0: none")
      ->check(CLI::Range(0, 86'400))
      ->default_str(snapshots);
}

// One line: what is wrong, and which help to read.
int WrongUsage(const CLI::App& app, const CLI::ParseError& error, const char* first) {
  std::string command = app.get_name();
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().front();
    command += " " + at->get_name();
  }
  std::string what = error.what();
  if (at == &app && first != nullptr && *first != '-')
    what = std::string("there is no subcommand \"") + first + "\"";
  std::replace(what.begin(), what.end(), '\n', ' ');
  std::fprintf(stderr, "outboard: %s; see `%s --help`\n", what.c_str(), command.c_str());
  return kUsage;
}

int Main(int argc, char** argv) {
  // Before the parser: executors are started for sessions, and their milliseconds count.
  if (argc > 1 && std::strcmp(argv[1], "executor") == 0) {
    return worker::ExecutorMain(worker::ExecutorOptionsFromEnvironment());
  }

  if (argc > 1 && std::strcmp(argv[1], "search") == 0) {
    return worker::SearchMain(worker::SearchOptionsFromEnvironment());
  }

  CLI::App app(
      "A cloud for tensors: gateway, workers, keys and bills.\n"
      "Exit codes: 0 done, 1 failed, 2 wrong usage or nobody could be reached.",
      "outboard");
  app.set_version_flag("--version", std::string("outboard ") + kVersion + " (protocol " +
                                        std::to_string(wire::kProtocolVersion) + ", graph schema " +
                                        std::to_string(wire::kGraphSchemaVersion) + ")");
  app.require_subcommand(1);

  ServerFlags server;
  AccountFlags account;

  CLI::App* up = app.add_subcommand("up", "A gateway and workers on this machine, until Ctrl-C");
  up->add_option("--workers", server.workers, "Worker processes")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  up->add_option("--port", server.port, "Port of the gateway; 0 takes a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  up->add_option("--host", server.host, "Address to listen at")->capture_default_str();
  up->add_flag("--no-auth", server.no_auth, "Ask for no keys (loopback only)");
  AddMemory(up, server, "3/4 of the machine's, divided by all devices");
  AddGateway(up, server, "30");
  AddReady(up, server);

  CLI::App* gateway = app.add_subcommand("gateway", "A gateway alone; workers join it");
  gateway->add_option("--listen", server.listen, "HOST:PORT or unix:/path")
      ->default_val("127.0.0.1:6667");
  gateway->add_option(
      "--fleet-token-file", server.fleet_token_file,
      "What workers must present (or $OUTBOARD_FLEET_TOKEN); without, only this machine's join");
  gateway->add_option("--drain", server.drain_s, "Seconds that sessions get to end when it stops")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  gateway->add_flag("--no-auth", server.no_auth,
                    "Ask for no keys (loopback and unix sockets only)");
  AddMemory(gateway, server, "what the worker says");
  AddGateway(gateway, server, "30");
  AddReady(gateway, server);

  CLI::App* worker = app.add_subcommand("worker", "A worker that joins a gateway");
  worker->add_option("--gateway", server.gateway, "HOST:PORT or unix:/path of the gateway")
      ->required();
  worker->add_option("--name", server.name, "For people (default: the host's name)");
  worker->add_option("--devices", server.devices, "Sessions at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  AddMemory(worker, server, "3/4 of the machine's, divided by --devices");
  worker->add_option("--fleet-token-file", server.fleet_token_file,
                     "As the gateway's (or $OUTBOARD_FLEET_TOKEN)");
  AddReady(worker, server);

  CLI::App* serve =
      app.add_subcommand("serve", "A gateway and a worker in one process, for one's own box");
  serve->add_option("--listen", server.listen, "HOST:PORT or unix:/path")
      ->default_val("127.0.0.1:6667");
  int serve_devices = 4;  // a program may hold several sessions
  serve->add_option("--devices", serve_devices, "Sessions at a time")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  serve->add_flag("--no-auth", server.no_auth, "Ask for no keys (loopback and unix sockets only)");
  serve->add_flag("--ephemeral", server.ephemeral, "Remove the data folder at the end")
      ->needs("--no-auth");
  AddMemory(serve, server, "3/4 of the machine's, which the sessions share");
  AddGateway(serve, server, "0");
  AddReady(serve, server);
  for (CLI::App* command : {up, worker, serve})
    command->add_flag("--no-idle-search", server.no_idle_search,
                      "Do not look for faster kernels while no session works (docs/tuning.md)");
  for (CLI::App* command : {worker, serve})
    command->add_flag("--quiet", server.ready.quiet)->group("");

  CLI::App* key = app.add_subcommand("key", "Keys of a data folder");
  key->require_subcommand(1);
  CLI::App* create = key->add_subcommand("create", "Make a key and print it, this once");
  create->add_option("--name", account.name, "For people")->capture_default_str();
  create->add_option("--tenant", account.tenant, "Who pays; made if new")->capture_default_str();
  CLI::App* list = key->add_subcommand("list", "All keys, without their secrets");
  CLI::App* revoke = key->add_subcommand("revoke", "End a key; its sessions end within seconds");
  revoke->add_option("id", account.id, "The key's id, from list")->required();
  CLI::App* usage = app.add_subcommand("usage", "Seconds and amounts by session");
  usage->add_option("--gateway", account.gateway,
                    "Ask this gateway, with $CLOUD_KEY, instead of reading --data");
  for (CLI::App* command : {create, list, revoke, usage}) {
    command->add_option("--data", account.data,
                        "Folder of accounts and blobs (default: $OUTBOARD_DATA)");
  }
  for (CLI::App* command : {create, list, usage})
    command->add_flag("--json", account.json, "For programs");

  StoreFlags stored;
  CLI::App* push = app.add_subcommand("push", "Files into the cloud, under names");
  push->add_option("file", stored.files, "Safetensors files go array by array, others as they are")
      ->required();
  push->add_option("--name", stored.name, "Of one file (default: the file's own)");
  CLI::App* pull = app.add_subcommand("pull", "What is under a name, as a file");
  pull->add_option("name", stored.names, "As store ls shows it")->required()->expected(1);
  pull->add_option("-o,--output", stored.output, "The file (default: as it was called)");
  CLI::App* store = app.add_subcommand("store", "What is in the cloud under names");
  store->require_subcommand(1);
  CLI::App* store_list = store->add_subcommand("ls", "Names, with size and date");
  store_list->add_option("prefix", stored.prefix, "Only names that begin so");
  CLI::App* store_remove = store->add_subcommand("rm", "Remove names, and what only they hold");
  store_remove->add_option("name", stored.names)->required();
  CLI::App* pin = store->add_subcommand("pin", "Neither replace nor remove this name");
  CLI::App* unpin = store->add_subcommand("unpin", "Let it go again");
  for (CLI::App* command : {pin, unpin})
    command->add_option("name", stored.names)->required()->expected(1);
  CLI::App* store_usage = store->add_subcommand("du", "Bytes that are used, and the quota");
  for (CLI::App* command : {push, pull, store_list, store_remove, pin, unpin, store_usage}) {
    command->add_option("--gateway", stored.gateway,
                        "HOST:PORT or unix:/path (default: $CLOUD_HOST); the key is $CLOUD_KEY");
  }
  for (CLI::App* command : {push, pull, store_list, store_remove, pin, unpin, store_usage})
    command->add_flag("--json", stored.json, "For programs");

  CacheFlags tuned;
  CLI::App* cache = app.add_subcommand("cache", "What workers here have measured of kernels");
  cache->require_subcommand(1);
  CLI::App* cache_list = cache->add_subcommand("ls", "Each kernel: its baseline and its best time");
  CLI::App* explain =
      cache->add_subcommand("explain", "Every choice that was measured of a kernel");
  explain->add_option("kernel", tuned.kernel, "The first digits of its id, from ls")->required();
  CLI::App* cache_export = cache->add_subcommand("export", "Write all of it, a line a kernel");
  cache_export->add_option("file", tuned.file, "Default: standard output");
  CLI::App* cache_import = cache->add_subcommand("import", "Add what another machine has exported");
  cache_import->add_option("file", tuned.file, "Default: standard input");
  CLI::App* forget = cache->add_subcommand("rm", "Forget a kernel, so that it is searched again");
  forget->add_option("kernel", tuned.kernel, "The first digits of its id, from ls");
  forget->add_flag("--all", tuned.all, "Forget all kernels");
  for (CLI::App* command : {cache_list, explain, cache_export, cache_import, forget})
    command->add_option("--store", tuned.store,
                        "The file (default: $OUTBOARD_KERNEL_STORE, else "
                        "kernels.db in ~/.cache/outboard)");

  std::string trace_file;
  CLI::App* trace = app.add_subcommand(
      "trace", "What a program with PROFILE=FILE spent its time on (docs/latency.md)");
  trace->add_option("file", trace_file, "What it wrote")->required();

  VizFlags viz;
  CLI::App* see =
      app.add_subcommand("viz", "A page that shows what rules did to each kernel (docs/viz.md)");
  see->add_option("file", viz.file, "What a worker with VIZ=1 wrote, or its folder")
      ->check(CLI::ExistingPath);
  see->add_option("--port", viz.port, "Port on this machine; 0 takes a free one")
      ->check(CLI::Range(0, 65535))
      ->capture_default_str();
  see->add_option("--ready-file", viz.ready.file, "Write the address here once it can be opened");
  see->add_option("--life-fd", viz.life_fd)->group("");

  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return WrongUsage(app, error, argv[1]);
  }
  for (int fd : {server.life_fd, server.ready.fd, viz.life_fd}) {
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);  // for us, not for our children
  }
  if (create->parsed()) return RunKeyCreate(account);
  if (list->parsed()) return RunKeyList(account);
  if (revoke->parsed()) return RunKeyRevoke(account);
  if (usage->parsed()) return RunUsage(account);
  if (push->parsed()) return RunPush(stored);
  if (pull->parsed()) return RunPull(stored);
  if (store_list->parsed()) return RunStoreList(stored);
  if (store_remove->parsed()) return RunStoreRemove(stored);
  if (pin->parsed()) return RunStorePin(stored, true);
  if (unpin->parsed()) return RunStorePin(stored, false);
  if (store_usage->parsed()) return RunStoreUsage(stored);
  if (cache_list->parsed()) return RunCacheList(tuned);
  if (explain->parsed()) return RunCacheExplain(tuned);
  if (cache_export->parsed()) return RunCacheExport(tuned);
  if (cache_import->parsed()) return RunCacheImport(tuned);
  if (forget->parsed()) return RunCacheRemove(tuned);
  BlockSignals();
  if (see->parsed()) return RunViz(viz);
  if (trace->parsed()) return RunTrace(trace_file);
  if (up->parsed()) return RunUp(server);
  if (gateway->parsed()) return RunGateway(server);
  if (worker->parsed()) return RunWorker(server);
  server.devices = serve_devices;
  return RunServe(server);
}

}  // namespace

int main(int argc, char** argv) { return Main(argc, argv); }
