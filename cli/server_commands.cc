// `outboard up`, `gateway`, `worker` and `serve`: their options. What they do is in cli/servers.cc.
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "cli/commands.h"
#include "cli/common.h"
#include "cli/telemetry.h"

namespace outboard::cli {

namespace {

void AddReady(Command app, ServerFlags& flags) {
  app.Add("--ready-file", &flags.ready.file, "Write the address here once everything is up");
  app.Add("--ready-fd", &flags.ready.fd).Hidden();
  app.Add("--life-fd", &flags.life_fd).Hidden();
  app.Add("--parent-pid", &flags.parent_pid).Hidden();
}

// `otherwise`: the default, in words.
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

// `snapshots`, `idle`: the defaults of --snapshot-every and --idle, in words.
void AddGatewayOptions(Command app, ServerFlags& flags, const std::string& snapshots,
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

template <typename Run>
void RunsServer(Command command, std::shared_ptr<ServerFlags> flags, Run run) {
  command.Runs(std::move(flags), [run](const ServerFlags& given) {
    BecomeServer(given.life_fd, given.ready);
    return run(given);
  });
}

Command AddUp(Arguments& app, const std::shared_ptr<ServerFlags>& flags) {
  ServerFlags& server = *flags;
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
  AddGatewayOptions(up, server, "30", "60");
  AddReady(up, server);
  RunsServer(up, flags, [listen](const ServerFlags& given) {
    if (listen.Given() && (given.port.has_value() || !given.host.empty())) {
      std::fprintf(stderr, "outboard: --port and --host are what --listen says too: give one\n");
      return 2;
    }
    return RunUp(given);
  });
  return up;
}

Command AddGateway(Arguments& app, const std::shared_ptr<ServerFlags>& flags) {
  ServerFlags& server = *flags;
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
  AddGatewayOptions(gateway, server, "30", "60");
  AddReady(gateway, server);
  RunsServer(gateway, flags, RunGateway);
  return gateway;
}

Command AddWorker(Arguments& app, const std::shared_ptr<ServerFlags>& flags) {
  ServerFlags& server = *flags;
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
  worker.Add("--advertise-data-address", &server.advertise_data_address,
             "HOST:PORT, in numbers, where other workers reach --data-address, if that differs: a "
             "container's mapped port, a translated address (default: --data-address)");
  AddReady(worker, server);
  RunsServer(worker, flags, RunWorker);
  return worker;
}

Command AddServe(Arguments& app, const std::shared_ptr<ServerFlags>& flags) {
  ServerFlags& server = *flags;
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
  AddGatewayOptions(serve, server, "0", "60; with --ephemeral 0");
  AddReady(serve, server);
  RunsServer(serve, flags, RunServe);
  return serve;
}

}  // namespace

void AddServerCommands(Arguments& app) {
  const auto flags = std::make_shared<ServerFlags>();
  ServerFlags& server = *flags;
  server.listen = "127.0.0.1:6667";
  Command up = AddUp(app, flags), gateway = AddGateway(app, flags),
          worker = AddWorker(app, flags), serve = AddServe(app, flags);
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
}

}  // namespace outboard::cli
