// The commands of the `outboard` program. Those whose options are declared in one file and which
// run in another have their flags here, and the functions that run them, which return the exit
// code (ExitCodeFor in cli/common.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/arguments.h"
#include "cli/common.h"
#include "cli/viz/page_server.h"
#include "gateway/base/limits.h"
#include "gateway/blobs/limits.h"
#include "gateway/core/events.h"

namespace outboard::cli {

inline constexpr char kDataHelp[] =
    "Folder of accounts and blobs (default: $OUTBOARD_DATA, else ~/.local/share/outboard)";

// `outboard up`, `gateway`, `worker` and `serve`: the long-running processes. `up` and `serve` are
// a gateway with its workers on one machine.

// What operators see of a server (cli/telemetry.cc).
struct TelemetryFlags {
  std::string metrics_listen;      // "HOST:PORT" or "off"; empty: as the command decides
  std::string metrics_token_file;
  bool metrics_by_account = false;
  std::string log_format = "text";
  std::string log_level;  // empty: as the command decides
};

struct ServerFlags {
  std::string listen;              // gateway, serve
  std::string fleet_listen;        // gateway; empty: see FleetListenFor in cli/server_options.cc
  std::string host;                // up: of --listen, as older scripts write it; empty: 127.0.0.1
  std::optional<int> port;         // up, likewise; 6667
  int workers = 1;                 // up
  int devices = 0;                 // worker, serve; 0: as DevicesOf decides
  std::string data;
  std::string gateway;            // worker: the gateway to join
  bool own = false;               // worker: of the account of $CLOUD_KEY alone
  std::string name;               // worker
  std::string fleet_secret_file;  // gateway, worker; $OUTBOARD_FLEET_SECRET takes precedence
  std::string identity_file;      // worker
  std::string data_address;       // worker; empty: none
  std::string advertise_data_address;  // worker; empty: data_address
  bool tls = false;               // also on loopback
  bool insecure = false;          // TLS never
  std::string tls_certificate_file, tls_key_file;  // gateway, serve, up
  std::vector<std::string> tls_names;              // gateway, serve, up
  std::string tls_ca_file, tls_fingerprint;        // worker: whom it believes
  int worker_certificate_s = 86'400;               // gateway
  bool worker_tokens = false;                      // gateway
  std::string token_file;                          // worker
  std::string node_folder;                         // worker: of a node (worker/init/node_init.h)
  std::string node_power_hook;                     // gateway; empty: none
  std::string tpm_roots_file;                      // gateway; empty: any maker's TPM
  int node_joins_within_s = 0;                     // gateway; 0: as it decides
  std::string proxy_secret_file;                   // gateway, serve
  std::vector<std::string> proxies;                // gateway, serve, up: ranges of addresses
  double price_per_hour_usd = 0.50;
  std::string prices_file;  // gateway, serve, up; empty: one price for all devices
  std::string credit_limit_usd = "none";  // gateway, serve, up: of accounts that have none
  int drain_s = 5;          // gateway
  int worker_drain_s = 15;  // worker
  std::optional<int> snapshot_every_s;  // up, gateway, serve
  int worker_timeout_s = 5;             // likewise
  uint64_t session_memory_bytes = 0;
  uint64_t quota_bytes = 0;  // per account in the store; 0: none
  // What an account or an address may have at a gateway (docs/limits.md).
  uint64_t quota_objects = gateway::kStoreObjectsMax;
  int connections_per_address = gateway::kConnectionsPerAddressMax;
  int sessions_per_account = static_cast<int>(gateway::CoreOptions().sessions_per_tenant_max);
  int devices_per_account = 0;  // 0: any number
  std::optional<int> idle_s;    // up, gateway, serve
  int openings_per_minute = gateway::kOpeningsPerMinute;
  bool no_auth = false;
  bool no_idle_search = false;  // up, worker, serve
  bool shared_anyway = false;   // up, worker, serve
  bool ephemeral = false;       // serve: the data folder is removed at the end
  TelemetryFlags telemetry;
  int life_fd = -1;
  int parent_pid = 0;
  ReadyOptions ready;
};

// Each runs until SIGINT, SIGTERM or the end of its parent process, and returns the exit code.
int RunUp(ServerFlags flags);
int RunGateway(const ServerFlags& flags);
int RunWorker(const ServerFlags& flags);
int RunServe(const ServerFlags& flags);

// `outboard key` and `outboard usage`: work on the accounts file of a data folder, or ask a gateway
// for the account of $CLOUD_KEY.

struct AccountFlags {
  std::string data;
  std::string name = "default";
  std::string account_name = "default";
  std::string id;
  std::string gateway;                     // usage: asks this gateway with $CLOUD_KEY
  std::string since;                       // usage: a time; empty: from the beginning
  std::string scopes = "run,usage,store";  // key create
  std::string expires;                     // key create: "30d" or a time; empty: never
  std::vector<std::string> from;           // key create: ranges of addresses; empty: anywhere
  bool json = false;
  bool verify = false;                     // invoice
  std::string month;                       // archive
  std::string on_off;                      // account share-tuning
  std::string amount;                      // credit, cap, account: US dollars, or a word
  std::string by;                          // usage: "key,session,day"; empty: by session
  double interval_s = 1;                   // top
  int count = 0;                           // top: pages; 0: until it is ended
};

// Declares --account, which sets `flags.account_name`. --tenant, as it was called before, is
// accepted too and is in no help.
void AddAccount(Command command, AccountFlags& flags, const std::string& help);

int RunKeyCreate(const AccountFlags& flags);
int RunKeyList(const AccountFlags& flags);
int RunKeyRevoke(const AccountFlags& flags);
// `outboard account`: each on the account `flags.account_name`; a running gateway follows within
// 5 s.
int RunAccountSuspend(const AccountFlags& flags);
int RunAccountResume(const AccountFlags& flags);
int RunAccountShareTuning(const AccountFlags& flags);  // of sessions that open from then on
int RunAccountList(const AccountFlags& flags);

// `outboard credit`, `cap`, and what `account` says of money (docs/money.md). A running gateway
// looks at what they write each time that it holds money for a session.
// "none" is no limit. INVALID_ARGUMENT names `what`.
absl::StatusOr<gateway::MicroUsd> CreditLimitFrom(const char* what, const std::string& text);
int RunAccountCreate(const AccountFlags& flags);
int RunAccountShow(const AccountFlags& flags);
int RunAccountCreditLimit(const AccountFlags& flags);
int RunCreditAdd(const AccountFlags& flags);
int RunCapSet(const AccountFlags& flags);  // of the key `id`; empty: of the account
int RunUsage(const AccountFlags& flags);
// Prints the entries of `flags.account_name`, or checks them (docs/money.md); exit code 1: they are
// not what they should be.
int RunInvoice(const AccountFlags& flags);
int RunAudit(const AccountFlags& flags);  // of all accounts
int RunArchive(const AccountFlags& flags);  // moves the closed month `month` to its file

// What an operator looks at (cli/books/watch.cc): of the gateway that runs in the data folder.
int RunPriceShow(const AccountFlags& flags);
int RunDeviceList(const AccountFlags& flags);
int RunTop(const AccountFlags& flags);  // until SIGINT or SIGTERM
// `usage --by`: of the accounts file. INVALID_ARGUMENT names the flag.
absl::Status PrintUsageBy(const AccountFlags& flags, gateway::WallTime since);

// ---- the others

// Each declares its commands, with what they do.
void AddServerCommands(Arguments& app);       // up, gateway, worker, serve
void AddAccountCommands(Arguments& app);      // all that take AccountFlags
void AddSessionCommands(Arguments& app);      // ps, stop
void AddCertificateCommands(Arguments& app);  // cert (docs/tls.md)
void AddQuarantineCommands(Arguments& app);   // quarantine (docs/fleet.md)
void AddStoreCommands(Arguments& app);        // push, pull, store (docs/store.md)
void AddTuningCommands(Arguments& app);       // cache (docs/tuning.md)
void AddMetricsCommands(Arguments& app);      // metrics (docs/metrics.md)
void AddTraceCommand(Arguments& app);         // trace (docs/latency.md)
void AddShardCommands(Arguments& app);        // shard (docs/many-devices.md)
void AddVizCommand(Arguments& app);           // viz (docs/viz.md)

// Summarises `json`, a file as client/trace/perfetto.h writes it, in a page of text: the share of
// time spent waiting, and the spans that took the most. Shares are of the time from the first Run's
// call to the end of the last span, in whole percents that add up to 100 for each of client,
// gateway and worker.
// Errors: INVALID_ARGUMENT  not such a file
absl::StatusOr<std::string> TraceSummary(std::string_view json);

struct ShardFlags {
  std::string file;  // a graph, as GRAPHS=FOLDER writes it
  int64_t devices = 2;
  std::string mesh;  // "2x4"; empty: one axis
  std::string spread = "auto";
  uint64_t memory_bytes = 0;  // of a device; 0: enough
  bool measures = false;      // this machine's links, as a worker does
};

// Explains how the encoded graph would be spread over devices. Errors: INVALID_ARGUMENT,
// UNIMPLEMENTED for flags or a graph that are none; the message names them.
absl::StatusOr<std::string> ShardExplanation(std::string_view encoding, const ShardFlags& flags);

// Returns the page of `outboard viz` at "/" and the file at "/rewrites"; the file is read at each
// request.
std::vector<Resource> VizResources(const std::string& file);

}  // namespace outboard::cli
