// `outboard`: the single program, with a subcommand for each role of a server, and for what users
// and operators do: keys, bills, sweeps, estimates.
#include <fcntl.h>

#include <cstdio>
#include <cstring>
#include <optional>
#include <string>

#include "cli/arguments.h"
#include "cli/commands.h"
#include "cli/common.h"
#include "cli/estimate/commands.h"
#include "cli/node/commands.h"
#include "cli/service_manager.h"
#include "cli/sweep/commands.h"
#include "cli/telemetry.h"
#include "wire/library_logs.h"
#include "wire/limits.h"
#include "worker/devices/measure_main.h"
#include "worker/executor/executor_main.h"
#include "worker/init/node_init.h"
#include "worker/tuning/search_main.h"

namespace {

using namespace outboard;
using namespace outboard::cli;

constexpr char kDataHelp[] =
    "Folder of accounts and blobs (default: $OUTBOARD_DATA, else ~/.local/share/outboard)";

void AddReady(Command app, ServerFlags& flags) {
  app.Add("--ready-file", &flags.ready.file, "Write the address here once everything is up");
  app.Add("--ready-fd", &flags.ready.fd).Hidden();
  app.Add("--life-fd", &flags.life_fd).Hidden();
  app.Add("--parent-pid", &flags.parent_pid).Hidden();
}

// `otherwise`: what it is where the flag is not given.
void AddMemory(Command app, ServerFlags& flags, const std::string& otherwise) {
  app.AddBytes("--session-memory", &flags.session_memory_bytes,
               "What a session may hold: 512MB, 8GiB ... (default: " + otherwise + ")");
}

// What a port presents, and whether it has TLS at all.
void AddTls(Command app, ServerFlags& flags) {
  app.Add("--insecure", &flags.insecure,
          "No TLS, also where other machines connect: keys and data are readable on the way");
  app.Add("--tls", &flags.tls, "TLS on loopback too");
  app.Add(
      "--tls-cert", &flags.tls_certificate_file,
      "PEM file with the certificate that clients are shown, and those above it (default: one of "
      "a CA in the data folder, which is made if it is not there)");
  app.Add("--tls-key", &flags.tls_key_file,
          "PEM file with its key, for its owner alone (mode 0600)");
  app.Add("--tls-name", &flags.tls_names,
          "A name or address of this machine as clients write it, for a certificate of the data "
          "folder's CA; may be given several times");
}

// `snapshots`, `idle`: what --snapshot-every and --idle are where they are not given.
void AddGateway(Command app, ServerFlags& flags, const std::string& snapshots,
                const std::string& idle) {
  app.Add("--data", &flags.data, kDataHelp);
  app.AddBytes("--quota", &flags.quota_bytes,
               "What each account may keep in the store: 512MB, 8GiB ... (default: any amount)");
  app.Add("--quota-objects", &flags.quota_objects,
          "How many chunks and blobs each account may keep in the store")
      .Positive()
      .ShowDefault(std::to_string(flags.quota_objects));
  app.Add("--connections-per-address", &flags.connections_per_address,
          "Connections of one IPv4 address or /64 of IPv6; this machine has no such limit")
      .Positive();
  app.Add("--proxy", &flags.proxies,
          "Address or range of a proxy or tunnel, as 10.0.0.5 or 10.0.0.0/24, that may have more "
          "connections, since many clients are behind it; may be given several times");
  app.Add("--sessions-per-account", &flags.sessions_per_account,
          "Sessions that an account may have at a time")
      .Positive();
  app.Add("--devices-per-account", &flags.devices_per_account,
          "Devices that an account may hold at a time; 0: any number")
      .Between(0, 1 << 20);
  app.Add("--idle", &flags.idle_s,
          "Seconds after which a connected session without work gives its device back and is not "
          "billed; its client is told half a minute before; 0: never")
      .Between(0, 86'400)
      .ShowDefault(idle);
  app.Add("--openings-per-minute", &flags.openings_per_minute,
          "Sessions that an account may open or resume within a minute")
      .Positive();
  app.Add("--price", &flags.price_per_hour_usd, "US dollars an hour for each device")
      .Between(0.0, 1e6)
      .ShowDefault();
  app.Add("--prices", &flags.prices_file,
          "File with classes of devices and their prices, instead of --price; read again at SIGHUP "
          "(docs/prices.md)");
  app.Add("--credit-limit", &flags.credit_limit_usd,
          "US dollars by which the balance of an account may go below zero, unless it has a limit "
          "of its own; 0: it uses no more than what was credited; none: any amount (docs/money.md)")
      .ShowDefault();
  app.Add("--snapshot-every", &flags.snapshot_every_s,
          "Seconds between snapshots of a session, from which it continues if its worker is lost; "
          "0: none")
      .Between(0, 86'400)
      .ShowDefault(snapshots);
  app.Add("--worker-timeout", &flags.worker_timeout_s,
          "Seconds without a heartbeat after which a worker is lost; more where machines have many "
          "more devices than cores")
      .Between(2, 60)
      .ShowDefault();
}

int Main(int argc, char** argv) {
  // Before the flag parser: executors are started for sessions, and their start-up time counts.
  if (argc > 1 && std::strcmp(argv[1], "executor") == 0) {
    return worker::ExecutorMain(worker::ExecutorOptionsFromEnvironment());
  }

  // The kernel's name for process 1.
  if (argc > 0 && std::strcmp(argv[0], "/init") == 0) return worker::NodeInitMain();

  if (argc > 1 && std::strcmp(argv[1], "search") == 0) {
    return worker::SearchMain(worker::SearchOptionsFromEnvironment());
  }

  if ((argc == 3 || argc == 4) && std::strcmp(argv[1], "measure-device") == 0)
    return worker::MeasureMain(argv[2], argc == 4 ? argv[3] : "");

  if (argc == 3 && std::strcmp(argv[1], "sweep-trials") == 0) return SweepTrialsMain(argv[2]);

  Arguments app("outboard",
                "A cloud for tensors: gateway, workers, keys and bills.\n"
                "Exit codes: 0 success, 1 failure, 2 wrong usage or server unreachable.");
  app.SetVersion(std::string("outboard ") + kVersion + " (protocol " +
                 std::to_string(wire::kProtocolVersion) + ", graph schema " +
                 std::to_string(wire::kGraphSchemaVersion) + ")");
  app.RequireSubcommand();

  ServerFlags server;
  server.listen = "127.0.0.1:6667";
  AccountFlags account;

  Command up = app.Subcommand(
      "up", "Run a gateway and workers, for others too; what ends is started again");
  up.Add("--workers", &server.workers, "Worker processes, each with an equal part of the cores")
      .Between(1, 64);
  up.Add("--devices", &server.devices,
         "Devices of each worker, each with an equal part of its cores, or a GPU: as many sessions "
         "of one device at a time, or fewer of several (default: 1; with OUTBOARD_DEVICE=cuda, the "
         "number of GPUs)")
      .Between(1, 64)
      .ShowDefault("");
  const Option listen =
      up.Add("--listen", &server.listen, "HOST:PORT or unix:/path; port 0 takes a free one")
          .ShowDefault();
  up.Add("--port", &server.port).Between(0, 65535).Hidden();  // as it was called before --listen
  up.Add("--host", &server.host).Hidden();
  up.Add("--no-auth", &server.no_auth, "Require no keys (loopback only)");
  AddTls(up, server);
  AddMemory(up, server, "3/4 of the machine's, divided by all devices; with GPUs, a GPU's");
  AddGateway(up, server, "30", "60");
  AddReady(up, server);

  Command gateway = app.Subcommand("gateway", "Run a gateway alone; workers join it");
  gateway.Add("--listen", &server.listen, "HOST:PORT or unix:/path").ShowDefault();
  gateway.Add(
      "--fleet-listen", &server.fleet_listen,
      "HOST:PORT or unix:/path where workers join (default: 127.0.0.1 and the port after that "
      "of --listen; of a unix socket its path with \".fleet\" behind)");
  gateway.Add("--fleet-secret-file", &server.fleet_secret_file,
              "File with the secret that workers must present (or $OUTBOARD_FLEET_SECRET; default: "
              "fleet.secret in the data folder, which is made if it is not there)");
  gateway
      .Add("--drain", &server.drain_s,
           "Seconds that sessions have to finish when the gateway stops")
      .Between(0, 3600);
  gateway.Add("--no-auth", &server.no_auth, "Require no keys (loopback and unix sockets only)");
  AddTls(gateway, server);
  gateway
      .Add("--worker-certificate-life", &server.worker_certificate_s,
           "Seconds that a worker's certificate is valid; it is renewed after two thirds")
      .Between(3, 30 * 86'400);
  gateway.Add("--worker-tokens", &server.worker_tokens,
              "A worker that has no certificate needs a token of `outboard cert token` besides the "
              "fleet secret, and cannot choose its name");
  gateway.Add("--node-power-hook", &server.node_power_hook,
              "Program that switches a node off and on: it is started as FILE cycle SERIAL where a "
              "rollout finds one that does not answer (docs/fleet.md)");
  gateway.Add("--tpm-roots", &server.tpm_roots_file,
              "PEM file with the certificates of the makers whose TPMs machines may prove "
              "themselves by (default: any maker's; docs/fleet.md)");
  gateway.Add("--node-joins-within", &server.node_joins_within_s).Between(1, 3600).Hidden();
  AddMemory(gateway, server, "the worker's own limit");
  AddGateway(gateway, server, "30", "60");
  AddReady(gateway, server);

  Command worker = app.Subcommand("worker", "Run a worker that joins a gateway");
  worker.Add("--gateway", &server.gateway,
             "HOST:PORT or unix:/path of its --fleet-listen; with --own of its --listen (default: "
             "$CLOUD_HOST)");
  worker.Add("--own", &server.own,
             "A machine of your own, for sessions of your account alone, at no price: it joins "
             "where clients connect, with $CLOUD_KEY (docs/own-machines.md)");
  worker
      .Add("--drain", &server.worker_drain_s,
           "Seconds that a worker which is stopped has to hand its sessions to others, from their "
           "snapshots; a second Ctrl-C does not wait")
      .Between(0, 3600);
  worker.Add("--name", &server.name, "Display name (default: the host's name)");
  worker.Add("--devices", &server.devices,
             "Devices, each with an equal part of the cores, or a GPU: as many sessions of one "
             "device at a time, or fewer of several (default: 1; with OUTBOARD_DEVICE=cuda, the "
             "number of GPUs)")
      .Between(1, 64)
      .ShowDefault("");
  AddMemory(worker, server, "3/4 of the machine's, divided by --devices; with GPUs, a GPU's");
  worker.Add("--fleet-secret-file", &server.fleet_secret_file,
             "File with the gateway's fleet secret (or $OUTBOARD_FLEET_SECRET; default: "
             "fleet.secret in this user's data folder)");
  worker.Add("--insecure", &server.insecure,
             "Join without TLS, also on another machine: the fleet secret is readable on the way");
  worker.Add("--tls", &server.tls, "Join by TLS on this machine too");
  worker.Add("--tls-ca", &server.tls_ca_file,
             "PEM file with the gateway's CA (tls/ca.pem in its data folder)");
  worker.Add("--tls-fingerprint", &server.tls_fingerprint,
             "Fingerprint of the gateway's CA (default: the one in --fleet-secret-file)");
  worker.Add("--token-file", &server.token_file,
             "File with a token of `outboard cert token` for --name (or $OUTBOARD_WORKER_TOKEN); "
             "needed once, by a gateway with --worker-tokens");
  worker.Add("--identity-file", &server.identity_file,
             "File by which the gateway knows this worker again (default: workers/NAME in this "
             "user's data folder)");
  worker.Add("--node-folder", &server.node_folder).Hidden();
  worker.Add("--data-address", &server.data_address,
             "HOST:PORT of this machine, in numbers, where workers connect to exchange data of "
             "sessions that are on several; reachable by workers alone; port 0: any (default: "
             "none, and a session has all of its devices here or none)");
  AddReady(worker, server);

  Command serve = app.Subcommand(
      "serve", "Run a gateway and a worker in one process, for you and friends");
  serve.Add("--listen", &server.listen, "HOST:PORT or unix:/path").ShowDefault();
  serve
      .Add("--devices", &server.devices,
           "Devices, which share all cores, or GPUs: as many sessions of one device at a time, or "
           "fewer of several (default: 4, since a program may hold several; with "
           "OUTBOARD_DEVICE=cuda, the number of GPUs)")
      .Between(1, 64)
      .ShowDefault("");
  serve.Add("--no-auth", &server.no_auth, "Require no keys (loopback and unix sockets only)");
  AddTls(serve, server);
  serve.Add("--ephemeral", &server.ephemeral, "Remove the data folder at the end")
      .Needs("--no-auth");
  AddMemory(serve, server, "3/4 of the machine's, which the sessions share; with GPUs, a GPU's");
  AddGateway(serve, server, "0", "60; with --ephemeral 0");
  AddReady(serve, server);
  for (Command command : {gateway, serve})
    command.Add("--proxy-secret-file", &server.proxy_secret_file,
                "File with the secret by which a proxy proves that it names the callers' addresses "
                "(deploy/nginx)");
  for (Command command : {up, worker, serve})
    command.Add("--no-idle-search", &server.no_idle_search,
                "Do not search for faster kernels while idle (docs/tuning.md)");
  for (Command command : {up, worker, serve})
    command.Add("--shared-anyway", &server.shared_anyway,
                "Serve several accounts at a time even where the kernel does not grant all of the "
                "sandbox (docs/sandbox.md)");
  for (Command command : {up, gateway, worker})
    AddTelemetry(command, server.telemetry, "127.0.0.1 with a free port", "info");
  AddTelemetry(serve, server.telemetry, "off",
               "error, or warning where other machines reach --listen");
  for (Command command : {up, gateway, serve})
    command.Add("--metrics-by-account", &server.telemetry.metrics_by_account,
                "Also show figures by account number");
  for (Command command : {worker, serve}) command.Add("--quiet", &server.ready.quiet).Hidden();

  Command key = app.Subcommand("key", "Manage the API keys in a data folder");
  key.RequireSubcommand();
  Command create = key.Subcommand("create", "Create a key and print it (it is not shown again)");
  create.Add("--name", &account.name, "Display name").ShowDefault();
  AddAccount(create, account, "The account that pays; created if new");
  create.Add("--scope", &account.scopes, "What it may do: some of run,usage,store,admin")
      .ShowDefault();
  create.Add("--expires", &account.expires,
             "Until when: 30d, 12h, 2026-01-31 or 2026-01-31T12:00:00Z (default: for ever)");
  create.Add("--from", &account.from,
             "From where: an address or a range like 10.0.0.0/8; may be given several times "
             "(default: anywhere)");
  Command list = key.ListSubcommand("List all keys, without their secrets");
  Command revoke = key.Subcommand("revoke", "Revoke a key; its sessions end within seconds");
  revoke.Add("id", &account.id, "The key's id, from ls").Required();
  Command accounts = app.Subcommand("account", "Manage the accounts in a data folder");
  accounts.RequireSubcommand();
  Command suspend = accounts.Subcommand(
      "suspend", "Refuse all keys of an account; what is open ends within seconds");
  Command resume = accounts.Subcommand("resume", "Undo suspend");
  Command share_tuning = accounts.Subcommand(
      "share-tuning", "Whether speeds measured of kernels without constants are shared between "
                      "accounts (docs/tuning.md)");
  for (Command command : {suspend, resume, share_tuning})
    command.Add("name", &account.tenant, "The account, as `account ls` prints it").Required();
  share_tuning.Add("on|off", &account.on_off, "on or off (default: on)").Required();
  Command account_list = accounts.ListSubcommand("List all accounts");
  Command account_create = accounts.Subcommand("create", "Make an account, with a credit limit");
  account_create.Add("name", &account.tenant, "Its name").Required();
  Command account_limit = accounts.Subcommand(
      "credit-limit", "Set by how much an account's balance may go below zero (docs/money.md)");
  account_limit.Add("name", &account.tenant, "The account, as `account ls` prints it").Required();
  account_limit
      .Add("USD", &account.amount, "US dollars; none: any amount; default: the gateway's")
      .Required();
  account_create.Add("--credit-limit", &account.amount,
                     "US dollars; none: any amount (default: the gateway's --credit-limit)");
  Command account_show =
      accounts.Subcommand("show", "Show an account's balance, what is held, and its limits");
  account_show.Add("name", &account.tenant, "The account, as `account ls` prints it").Required();
  Command credit = app.Subcommand("credit", "Credit accounts (docs/money.md)");
  credit.RequireSubcommand();
  Command credit_add = credit.Subcommand("add", "Add to an account's balance");
  credit_add.Add("USD", &account.amount, "US dollars, such as 20 or 0.50").Required();
  credit_add
      .Add("--id", &account.id,
           "Name of this payment: the same command again adds nothing, another amount is refused")
      .Required();
  Command cap = app.Subcommand("cap", "Bound what is charged (docs/money.md)");
  cap.RequireSubcommand();
  Command cap_set =
      cap.Subcommand("set", "Bound what an account or a key is charged from now on");
  cap_set.Add("USD", &account.amount, "US dollars; none: no cap").Required();
  cap_set.Add("--key", &account.id, "A key's id, as `key ls` prints it (default: the account)");
  for (Command command : {credit_add, cap_set})
    AddAccount(command, account, "The account");
  Command invoice = app.Subcommand(
      "invoice", "List what an account was charged and credited, or check it (docs/money.md)");
  invoice.Add("--verify", &account.verify,
              "Compute every line and the chain of hashes anew, and compare them with what the "
              "gateway signed before; exit code 1 if anything differs");
  AddAccount(invoice, account, "The account, without --gateway");
  Command audit = app.Subcommand(
      "audit", "Check the whole ledger of a data folder; exit code 1 if it does not verify");
  Command archive = app.Subcommand(
      "archive", "Move a closed month of the ledger to a file of its own (docs/money.md)");
  archive.Add("month", &account.month, "The month, like 2026-10").Required();
  Command usage = app.Subcommand("usage", "Show every session: how long it ran, what it cost");
  usage.Add("--since", &account.since,
            "Only sessions that ran since this time, with what was charged since: 2026-01-31 or "
            "2026-01-31T12:00:00Z (default: all)");
  for (Command command : {usage, invoice})
    command.Add("--gateway", &account.gateway,
                "Ask this gateway, with $CLOUD_KEY, instead of reading --data");
  usage.Add("--by", &account.by,
            "Sums by some of account, key, session, day and state, as in key,day (default: the "
            "sessions, one by one)");
  Command price = app.Subcommand("price", "What devices cost (docs/prices.md)");
  price.RequireSubcommand();
  Command price_show = price.Subcommand("show", "Show the prices that the gateway has now");
  Command device = app.Subcommand("device", "The devices of a gateway");
  device.RequireSubcommand();
  Command device_list =
      device.ListSubcommand("List devices: worker, class, state, and who has them");
  Command top = app.Subcommand("top", "Watch sessions, the queue and devices, until Ctrl-C");
  top.Add("--interval", &account.interval_s, "Seconds between two pages").Between(0.1, 3600.0);
  top.Add("--count", &account.count, "So many pages, then end (default: until Ctrl-C)")
      .Between(0, 1'000'000);
  for (Command command :
       {create, list, revoke, usage, suspend, resume, share_tuning, account_list, account_create,
        account_limit, account_show, credit_add, cap_set, price_show, device_list, top,
        invoice, audit, archive}) {
    command.Add("--data", &account.data, kDataHelp);
  }
  for (Command command : {create, list, usage, account_create, account_limit, account_show,
                          credit_add, cap_set, price_show, device_list, top, invoice,
                          audit, archive})
    command.Add("--json", &account.json, "Print JSON");

  SessionFlags listed;
  Command ps = app.Subcommand("ps", "List the account's sessions: name, state, age, cost");
  Command stop = app.Subcommand("stop", "End sessions of the account, with their state");
  stop.Add("session", &listed.sessions, "Names or ids, as `ps` prints them").Required();
  for (Command command : {ps, stop}) {
    command.Add("--gateway", &listed.gateway,
                "HOST:PORT or unix:/path (default: $CLOUD_HOST); the key is $CLOUD_KEY");
    command.Add("--json", &listed.json, "Print JSON");
  }

  CertFlags certified;
  Command cert = app.Subcommand("cert", "Manage the private CA and certificates of a data folder");
  cert.RequireSubcommand();
  Command cert_init = cert.Subcommand("init", "Make a CA and the gateway's certificate");
  cert_init.Add(
      "--name", &certified.names,
      "A name or address of this machine as clients write it; may be given several times");
  Command cert_issue =
      cert.Subcommand("issue", "Issue a certificate for a server, a proxy for example");
  cert_issue
      .Add("name", &certified.names, "Names and addresses of the server, as clients write them")
      .Required();
  cert_issue.Add("-o,--output", &certified.output,
                 "Write OUTPUT.pem and OUTPUT.key (default: the first name)");
  Command cert_renew =
      cert.Subcommand("renew", "Replace a certificate by a new one with the same names");
  cert_renew.Add("file", &certified.file, "What `issue` wrote (default: the gateway's own)");
  cert_renew.Add("--name", &certified.names, "A name to add; may be given several times");
  Command cert_show =
      cert.Subcommand("show", "Show the CA, the gateway's certificate and those of its workers");
  cert_show.Add("file", &certified.file, "Show what is in this PEM file instead");
  cert_show.Add("--fingerprint", &certified.fingerprint,
                "Only the fingerprint of the CA, for CLOUD_FINGERPRINT");
  cert_show.Add("--json", &certified.json, "Print JSON");
  Command cert_revoke = cert.Subcommand("revoke", "Refuse a worker's certificate");
  cert_revoke.Add("worker", &certified.serial, "Its serial number or name, as `show` prints it")
      .Required();
  Command cert_token = cert.Subcommand(
      "token", "Make a token with which one new worker enrols (--worker-tokens), for 15 minutes");
  cert_token.Add("name", &certified.names, "The worker's --name: its serial number, for example")
      .Required()
      .Once();
  for (Command command : {cert_init, cert_issue, cert_renew, cert_show, cert_revoke, cert_token})
    command.Add("--data", &certified.data, kDataHelp);
  for (Command command : {cert_init, cert_issue, cert_renew})
    command.Add("--days", &certified.days, "Days that the certificate is valid").Between(1, 3650);
  for (Command command : {cert_init, cert_issue})
    command.Add("--force", &certified.force, "Replace what is there already");

  QuarantineFlags quarantined;
  Command quarantine = app.Subcommand(
      "quarantine", "Manage the workers and machines that a gateway has set aside (docs/fleet.md)");
  quarantine.RequireSubcommand();
  Command quarantine_list =
      quarantine.ListSubcommand("List them: identity, name, since when, and why");
  quarantine_list.Add("--json", &quarantined.json, "Print JSON");
  Command quarantine_lift =
      quarantine.Subcommand("lift", "Give a worker or a machine sessions again, within seconds");
  quarantine_lift
      .Add("worker", &quarantined.worker, "Its identity, name or serial number, as ls prints it")
      .Required();
  for (Command command : {quarantine_list, quarantine_lift})
    command.Add("--data", &quarantined.data, kDataHelp);

  StoreFlags stored;
  Command push = app.Subcommand("push", "Upload files and store them under names");
  push.Add("file", &stored.files, "Files to upload: safetensors array by array, others as a whole")
      .Required();
  push.Add("--name", &stored.name, "Name for a single file (default: the file's own)");
  Command pull = app.Subcommand("pull", "Download what is stored under a name");
  pull.Add("name", &stored.names, "The name, as `store ls` prints it").Required().Once();
  pull.Add("-o,--output", &stored.output, "Output file (default: the original name)");
  pull.Add("--force", &stored.force, "Replace a file that is there already");
  Command store = app.Subcommand("store", "List and manage stored names");
  store.RequireSubcommand();
  Command store_list = store.ListSubcommand("List names with size and date");
  store_list.Add("prefix", &stored.prefix, "Only names with this prefix");
  Command store_remove =
      store.Subcommand("rm", "Remove names, and the data that no other name uses");
  store_remove.Add("name", &stored.names, "Names, as `store ls` prints them").Required();
  Command pin = store.Subcommand("pin", "Protect a name from replacement and removal");
  Command unpin = store.Subcommand("unpin", "Undo pin");
  for (Command command : {pin, unpin})
    command.Add("name", &stored.names, "The name, as `store ls` prints it").Required().Once();
  Command store_usage = store.Subcommand("du", "Show the bytes used and the quota");
  for (Command command : {push, pull, store_list, store_remove, pin, unpin, store_usage}) {
    command.Add("--gateway", &stored.gateway,
                "HOST:PORT or unix:/path (default: $CLOUD_HOST); the key is $CLOUD_KEY");
  }
  for (Command command : {push, pull, store_list, store_remove, pin, unpin, store_usage})
    command.Add("--json", &stored.json, "Print JSON");

  CacheFlags tuned;
  Command cache = app.Subcommand("cache", "Manage the kernel timings measured on this machine");
  cache.RequireSubcommand();
  Command cache_list = cache.ListSubcommand("List kernels with their baseline and best time");
  Command explain = cache.Subcommand("explain", "Show every measured variant of a kernel");
  explain.Add("kernel", &tuned.kernel, "First digits of the kernel's id, as `cache ls` prints it")
      .Required();
  Command cache_export = cache.Subcommand("export", "Export all results, one line per kernel");
  cache_export.Add("file", &tuned.file, "File to write (default: standard output)");
  Command cache_import = cache.Subcommand("import", "Import another machine's export");
  cache_import.Add("file", &tuned.file, "File to read (default: standard input)");
  Command forget =
      cache.Subcommand("rm", "Remove a kernel's results, so that it is searched again");
  forget.Add("kernel", &tuned.kernel, "First digits of the kernel's id, as `cache ls` prints it");
  forget.Add("--all", &tuned.all, "Remove all results");
  for (Command command : {cache_list, explain, cache_export, cache_import, forget})
    command.Add("--store", &tuned.store,
                "Tuning store (default: $OUTBOARD_KERNEL_STORE, else "
                "kernels.db in ~/.cache/outboard)");

  Command metrics = app.Subcommand("metrics", "What /metrics shows");
  metrics.RequireSubcommand();
  Command metrics_list =
      metrics.ListSubcommand("Print the table of metrics, as docs/metrics.md has it");

  std::string trace_file;
  Command trace = app.Subcommand(
      "trace", "Summarise where a program's time went (PROFILE=FILE, docs/latency.md)");
  trace.Add("file", &trace_file, "The trace file").Required();

  ShardFlags sharded;
  Command shard = app.Subcommand("shard", "How a graph is spread over devices");
  shard.RequireSubcommand();
  Command shard_explain = shard.Subcommand(
      "explain", "Show layouts, bytes and predicted time of a graph (docs/many-devices.md)");
  shard_explain.Add("graph", &sharded.file, "A graph that a program wrote with GRAPHS=FOLDER")
      .Required();
  shard_explain.Add("--devices", &sharded.devices, "How many devices").Positive();
  shard_explain.Add("--mesh", &sharded.mesh, "How they are arranged, as 2x4 (default: one axis)");
  shard_explain.Add("--spread", &sharded.spread, "auto, data, fsdp or tensor").ShowDefault();
  shard_explain.Add("--measure", &sharded.measures,
                    "Predict by this machine's links, measured as a worker does it");
  shard_explain.AddBytes("--memory", &sharded.memory_bytes,
                         "What a device has (default: enough for any spread)");

  SweepCommand sweep(app);
  EstimateCommand estimate(app);

  NodeCommands nodes(app);

  VizFlags viz;
  Command see =
      app.Subcommand("viz", "Serve a page that shows how each kernel was rewritten (docs/viz.md)");
  see.Add("file", &viz.file, "A file written with VIZ=1, or its folder").ExistingPath();
  see.Add("--port", &viz.port, "Port on this machine; 0 takes a free one").Between(0, 65535);
  see.Add("--ready-file", &viz.ready.file, "Write the address here once it can be opened");
  see.Add("--life-fd", &viz.life_fd).Hidden();

  if (const std::optional<int> exit_code = app.Parse(argc, argv)) return *exit_code;
  for (int fd : {server.life_fd, server.ready.fd, viz.life_fd}) {
    if (fd >= 0) fcntl(fd, F_SETFD, FD_CLOEXEC);  // not inherited by children
  }
  if (create.Given()) return RunKeyCreate(account);
  if (list.Given()) return RunKeyList(account);
  if (revoke.Given()) return RunKeyRevoke(account);
  if (suspend.Given()) return RunAccountSuspend(account);
  if (resume.Given()) return RunAccountResume(account);
  if (share_tuning.Given()) return RunAccountShareTuning(account);
  if (account_list.Given()) return RunAccountList(account);
  if (account_create.Given()) return RunAccountCreate(account);
  if (account_limit.Given()) return RunAccountCreditLimit(account);
  if (account_show.Given()) return RunAccountShow(account);
  if (credit_add.Given()) return RunCreditAdd(account);
  if (cap_set.Given()) return RunCapSet(account);
  if (invoice.Given()) return RunInvoice(account);
  if (audit.Given()) return RunAudit(account);
  if (archive.Given()) return RunArchive(account);
  if (usage.Given()) return RunUsage(account);
  if (ps.Given()) return RunPs(listed);
  if (stop.Given()) return RunStop(listed);
  if (price_show.Given()) return RunPriceShow(account);
  if (device_list.Given()) return RunDeviceList(account);
  if (top.Given()) return RunTop(account);
  if (cert_init.Given()) return RunCertInit(certified);
  if (cert_issue.Given()) return RunCertIssue(certified);
  if (cert_renew.Given()) return RunCertRenew(certified);
  if (cert_show.Given()) return RunCertShow(certified);
  if (cert_revoke.Given()) return RunCertRevoke(certified);
  if (cert_token.Given()) return RunCertToken(certified);
  if (quarantine_list.Given()) return RunQuarantineList(quarantined);
  if (quarantine_lift.Given()) return RunQuarantineLift(quarantined);
  if (push.Given()) return RunPush(stored);
  if (pull.Given()) return RunPull(stored);
  if (store_list.Given()) return RunStoreList(stored);
  if (store_remove.Given()) return RunStoreRemove(stored);
  if (pin.Given()) return RunStorePin(stored, true);
  if (unpin.Given()) return RunStorePin(stored, false);
  if (store_usage.Given()) return RunStoreUsage(stored);
  if (metrics_list.Given()) return RunMetricsList();
  if (shard_explain.Given()) return RunShardExplain(sharded);
  if (sweep.Given()) return sweep.Run();
  if (estimate.Given()) return estimate.Run();
  if (nodes.Given()) return nodes.Run();
  if (cache_list.Given()) return RunCacheList(tuned);
  if (explain.Given()) return RunCacheExplain(tuned);
  if (cache_export.Given()) return RunCacheExport(tuned);
  if (cache_import.Given()) return RunCacheImport(tuned);
  if (forget.Given()) return RunCacheRemove(tuned);
  BlockSignals();
  if (see.Given()) return RunViz(viz);
  if (trace.Given()) return RunTrace(trace_file);
  if (up.Given() && listen.Given() && (server.port.has_value() || !server.host.empty())) {
    std::fprintf(stderr, "outboard: --port and --host are what --listen says too: give one\n");
    return 2;
  }
  if (up.Given()) return RunUp(server);
  if (gateway.Given()) return RunGateway(server);
  if (worker.Given()) return RunWorker(server);
  return RunServe(server);
}

}  // namespace

int main(int argc, char** argv) {
  wire::SilenceLibraryLogs();
  cli::ForbidCoreDumps();
  cli::ServiceManager::OfProcess();
  return Main(argc, argv);
}
