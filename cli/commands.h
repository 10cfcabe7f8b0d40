// The commands of the `outboard` program: for each its flags and the function that runs it, which
// returns the exit code (ExitCodeFor in cli/common.h). cli/main.cc declares their options.
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
  uint64_t quota_bytes = 0;  // per tenant in the store; 0: none
  // What a tenant or an address may have at a gateway (docs/limits.md).
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
  std::string tenant = "default";
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

// Declares --account, which sets `flags.tenant`. --tenant, as it was called before, is accepted too
// and is in no help.
void AddAccount(Command command, AccountFlags& flags, const std::string& help);

int RunKeyCreate(const AccountFlags& flags);
int RunKeyList(const AccountFlags& flags);
int RunKeyRevoke(const AccountFlags& flags);
// `outboard account`: each on the account `flags.tenant`; a running gateway follows within 5 s.
int RunAccountSuspend(const AccountFlags& flags);
int RunAccountResume(const AccountFlags& flags);
int RunAccountShareTuning(const AccountFlags& flags);  // of sessions that open from then on
int RunAccountList(const AccountFlags& flags);

// `outboard credit`, `cap`, and what `account` says of money (docs/money.md). A running gateway
// looks at what they write each time that it holds money for a session.
// "none" is no limit. INVALID_ARGUMENT and OUT_OF_RANGE name `what`.
absl::StatusOr<gateway::MicroUsd> CreditLimitFrom(const char* what, const std::string& text);
int RunAccountCreate(const AccountFlags& flags);
int RunAccountShow(const AccountFlags& flags);
int RunAccountCreditLimit(const AccountFlags& flags);
int RunCreditAdd(const AccountFlags& flags);
int RunCapSet(const AccountFlags& flags);  // of the key `id`; empty: of the account
int RunUsage(const AccountFlags& flags);
// Prints the entries of `flags.tenant`, or checks them (docs/money.md); exit code 1: they are not
// what they should be.
int RunInvoice(const AccountFlags& flags);
int RunAudit(const AccountFlags& flags);  // of all accounts
int RunArchive(const AccountFlags& flags);  // moves the closed month `month` to its file

// `outboard ps` and `stop`: sessions of the account of $CLOUD_KEY at a gateway.

struct SessionFlags {
  std::string gateway;  // empty: $CLOUD_HOST
  std::vector<std::string> sessions;  // stop: names or ids
  bool json = false;
};

int RunPs(const SessionFlags& flags);
int RunStop(const SessionFlags& flags);
// What an operator looks at (cli/books/watch.cc): of the gateway that runs in the data folder.
int RunPriceShow(const AccountFlags& flags);
int RunDeviceList(const AccountFlags& flags);
int RunTop(const AccountFlags& flags);  // until SIGINT or SIGTERM
// `usage --by`: of the accounts file. INVALID_ARGUMENT names the flag.
absl::Status PrintUsageBy(const AccountFlags& flags, gateway::WallTime since);

// `outboard cert`: the private CA in a data folder, and what it issues (docs/tls.md).

struct CertFlags {
  std::string data;
  std::string file;                // renew, show: a certificate's; empty: the gateway's own
  std::string output;              // issue: the files' name without its ending
  std::string serial;              // revoke: a serial number, or a worker's name
  std::vector<std::string> names;  // init, issue, renew
  int days = 90;
  bool fingerprint = false;  // show: nothing else
  bool force = false;
  bool json = false;
};

int RunCertInit(const CertFlags& flags);
int RunCertIssue(const CertFlags& flags);
int RunCertRenew(const CertFlags& flags);
int RunCertShow(const CertFlags& flags);
int RunCertRevoke(const CertFlags& flags);
int RunCertToken(const CertFlags& flags);  // for the worker names.front()

// `outboard quarantine`: workers and machines that the gateway of a data folder has set
// aside (docs/fleet.md).

struct QuarantineFlags {
  std::string data;
  std::string worker;  // lift: an identity, name or serial number, as ls prints them
  bool json = false;
};

int RunQuarantineList(const QuarantineFlags& flags);
int RunQuarantineLift(const QuarantineFlags& flags);  // a running gateway follows within 5 s

// `outboard push`, `pull` and `store`: files in the cloud under names, with $CLOUD_HOST and
// $CLOUD_KEY.

struct StoreFlags {
  std::string gateway;             // empty: $CLOUD_HOST, else this machine's
  std::vector<std::string> files;  // push
  std::vector<std::string> names;  // rm; pull, pin, unpin: one
  std::string name;                // push: of one file
  std::string output;              // pull
  bool force = false;              // pull
  std::string prefix;              // ls
  bool json = false;
};

// Each returns the exit code: 0, 1, 2, or 130 if Ctrl-C interrupted a transfer; repeating the same
// command resumes it.
int RunPush(const StoreFlags& flags);
int RunPull(const StoreFlags& flags);
int RunStoreList(const StoreFlags& flags);
int RunStoreRemove(const StoreFlags& flags);
int RunStorePin(const StoreFlags& flags, bool pinned);
int RunStoreUsage(const StoreFlags& flags);

// `outboard cache`: lists, explains, exports, imports and removes the tuning results of this
// machine's workers (worker/tuning/tuning_store.h).

struct CacheFlags {
  std::string store;   // the tuning store; empty: where workers store it
  std::string kernel;  // the first digits of an id
  std::string file;    // of export and import; empty: stdout, stdin
  bool all = false;
};

// Each returns the exit code.
int RunCacheList(const CacheFlags& flags);
// Prints all measured choices of Opts for one kernel, the fastest first.
int RunCacheExplain(const CacheFlags& flags);
int RunCacheExport(const CacheFlags& flags);
// Adds the file's entries to the store. Entries of other hardware are stored but not used here.
int RunCacheImport(const CacheFlags& flags);
int RunCacheRemove(const CacheFlags& flags);

// `outboard metrics ls`: prints the table of metrics as docs/metrics.md has it.
int RunMetricsList();

// `outboard trace`: summarises a trace (PROFILE=out.json, docs/latency.md) in a page of text: the
// share of time spent waiting, and the spans that took the most.

// Summarises `json`, a file as client/trace/perfetto.h writes it. Shares are of the time from the
// first Run's call to the end of the last span, in whole percents that add up to 100 for each of
// client, gateway and worker.
// Errors: INVALID_ARGUMENT  not such a file
absl::StatusOr<std::string> TraceSummary(std::string_view json);

// Returns the exit code.
int RunTrace(const std::string& file);

// `outboard shard explain`: how a graph would be spread over devices (docs/many-devices.md).

struct ShardFlags {
  std::string file;  // a graph, as GRAPHS=FOLDER writes it
  int64_t devices = 2;
  std::string mesh;  // "2x4"; empty: one axis
  std::string spread = "auto";
  uint64_t memory_bytes = 0;  // of a device; 0: enough
  bool measures = false;      // this machine's links, as a worker does
};

// Explains the encoded graph. Errors: INVALID_ARGUMENT, UNIMPLEMENTED for flags or a graph that are
// none; the message names them.
absl::StatusOr<std::string> ShardExplanation(std::string_view encoding, const ShardFlags& flags);
int RunShardExplain(const ShardFlags& flags);

// `outboard viz`: serves a page that shows the effect of rewrite rules on each kernel, from a file
// written with VIZ=1 (docs/viz.md).

struct VizFlags {
  std::string file;  // or a folder, whose newest file is shown; empty: the folder of VIZ=1
  int port = 0;      // 0 takes a free one
  int life_fd = -1;
  ReadyOptions ready;
};

// Runs until SIGINT or SIGTERM; returns the exit code.
int RunViz(const VizFlags& flags);

// Returns the page at "/" and the file at "/rewrites"; the file is read at each request.
std::vector<Resource> VizResources(const std::string& file);

}  // namespace outboard::cli
