#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <limits>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/cores.h"
#include "base/environment.h"
#include "cli/commands.h"
#include "cli/telemetry.h"
#include "client/session/address.h"
#include "client/session/bulk.h"
#include "client/session/link/grpc_link.h"
#include "gateway/server/fleet_secret.h"
#include "gateway/server/gateway.h"
#include "runtime/devices.h"
#include "telemetry/log.h"
#include "worker/executor/executor_main.h"
#include "worker/node/core_sets.h"
#include "worker/node/identity.h"
#include "worker/node/supervisor.h"
#include "worker/process/child_process.h"
#include "worker/tuning/tuning_store.h"

namespace outboard::cli {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kWorkersJoinWithin{20};
constexpr size_t kProxySecretBytesMin = 32;  // 128 bits in hex
// Of workers that end by themselves, before `up` gives up as failed.
constexpr int kRestartsMax = 16;

// The secret that was given, or "". Executors do not inherit it. `fingerprint`: as in
// ReadFleetSecret.
absl::StatusOr<std::string> GivenFleetSecret(const ServerFlags& flags,
                                             std::string* fingerprint = nullptr) {
  if (const std::string secret = TakeSecret("OUTBOARD_FLEET_SECRET"); !secret.empty()) {
    OB_RETURN_IF_ERROR(session::CheckKeyText("OUTBOARD_FLEET_SECRET", secret));
    return secret;
  }
  if (flags.fleet_secret_file.empty()) return "";
  auto secret = gateway::ReadFleetSecret(flags.fleet_secret_file, fingerprint);
  if (secret.ok()) return secret;
  return absl::InvalidArgumentError(
      absl::StrCat("--fleet-secret-file: ", secret.status().message()));
}

// Of a worker: where nothing is given, that of a gateway of this user's on this machine.
absl::StatusOr<std::string> FleetSecretOfWorker(const ServerFlags& flags,
                                                std::string* fingerprint) {
  OB_ASSIGN_OR_RETURN(const std::string given, GivenFleetSecret(flags, fingerprint));
  if (!given.empty()) return given;
  // Another machine's gateway has another secret, and is not to learn this one.
  if (session::IsOnThisMachine(flags.gateway)) {
    auto secret =
        gateway::ReadFleetSecret(gateway::FleetSecretPath(DefaultDataFolder()), fingerprint);
    if (!absl::IsNotFound(secret.status())) return secret;
  }
  return absl::InvalidArgumentError(
      "a worker needs the fleet secret of its gateway: give --fleet-secret-file a copy of "
      "fleet.secret in the gateway's data folder");
}

// Where the workers of `up` show their metrics: at the ports after the gateway's.
std::string WorkerMetricsListen(const TelemetryFlags& flags, int index) {
  const std::string& listen = flags.metrics_listen;
  const size_t colon = listen.rfind(':');
  int port = 0;
  if (colon == std::string::npos || !absl::SimpleAtoi(listen.substr(colon + 1), &port) || port == 0)
    return listen.empty() ? "127.0.0.1:0" : listen;
  return absl::StrCat(listen.substr(0, colon), ":", port + 1 + index);
}

// Of the workers of `up`, which know nothing of each other: worker i has result[i], and divides it
// among its devices.
std::vector<std::vector<int>> CoresOfWorkers(int workers) {
  const std::vector<int> all = UsableCores();
  const size_t cores = worker::PhysicalCores(all).size();
  if (cores < static_cast<size_t>(workers))
    telemetry::LogWarning("workers_share_cores", {{"workers", workers},
                                                  {"cores", cores},
                                                  {"effect",
                                                   "workers slow each other down "
                                                   "(--workers)"}});
  return worker::DivideCores(all, workers);
}

// Where workers join a gateway that listens for clients at `listen`, unless it is given.
std::string FleetListenFor(const std::string& listen) {
  if (listen.starts_with("unix:")) return listen + ".fleet";
  int port = 0;
  if (!absl::SimpleAtoi(listen.substr(listen.rfind(':') + 1), &port)) return "";
  if (port == 65535) return "127.0.0.1:65534";
  return absl::StrCat("127.0.0.1:", port == 0 ? 0 : port + 1);
}

// How a worker's connections are protected. `fingerprint`: of the file with the secret, for where
// nothing else says whom to believe.
absl::StatusOr<session::Protection> ProtectionOfWorker(const ServerFlags& flags,
                                                       const std::string& fingerprint) {
  const bool is_told = !flags.tls_ca_file.empty() || !flags.tls_fingerprint.empty();
  if (flags.insecure && (flags.tls || is_told))
    return absl::InvalidArgumentError(
        "--insecure asks for a connection without TLS, and --tls, --tls-ca or --tls-fingerprint "
        "for one with it");
  OB_ASSIGN_OR_RETURN(session::Protection protection,
                      session::Protection::Trusting(
                          flags.tls_ca_file, is_told ? flags.tls_fingerprint : fingerprint,
                          {.ca = "--tls-ca",
                           .fingerprint = is_told ? "--tls-fingerprint"
                                                  : "the fingerprint in the file of the "
                                                    "fleet secret"}));
  protection.also_here = flags.tls || is_told;
  protection.in_the_clear = flags.insecure;
  return protection;
}

// By default the file of this name in this user's data folder.
std::string IdentityPath(const ServerFlags& flags) {
  if (!flags.identity_file.empty()) return flags.identity_file;
  std::string name = flags.name.empty() ? "default" : flags.name;
  for (char& c : name)
    if (!absl::ascii_isalnum(static_cast<unsigned char>(c)) && c != '-') c = '_';
  return DefaultDataFolder() + "/workers/" + name;
}

// The token that a worker was given, or "".
absl::StatusOr<std::string> GivenToken(const ServerFlags& flags) {
  if (const std::string token = TakeSecret("OUTBOARD_WORKER_TOKEN"); !token.empty()) {
    OB_RETURN_IF_ERROR(session::CheckKeyText("OUTBOARD_WORKER_TOKEN", token));
    return token;
  }
  if (flags.token_file.empty()) return "";
  auto token = gateway::ReadFleetSecret(flags.token_file);  // a file of the same kind
  if (token.ok()) return token;
  return absl::InvalidArgumentError(absl::StrCat("--token-file: ", token.status().message()));
}

// `snapshot_every_s`: what --snapshot-every is where it is not given.
absl::StatusOr<gateway::GatewayOptions> OptionsFor(const ServerFlags& flags,
                                                   int snapshot_every_s = 30) {
  gateway::GatewayOptions options;
  options.listen = flags.listen;
  options.data_folder = flags.data.empty() ? DefaultDataFolder() : flags.data;
  options.no_auth = flags.no_auth;
  OB_ASSIGN_OR_RETURN(options.fleet_secret, GivenFleetSecret(flags));
  if (absl::Status status = session::CheckTarget("--listen", flags.listen, /*lowest_port=*/0);
      !status.ok())
    return status;
  options.tls = {.insecure = flags.insecure,
                 .clients_here = flags.tls,
                 .certificate_file = flags.tls_certificate_file,
                 .key_file = flags.tls_key_file,
                 .names = flags.tls_names,
                 .worker_lifetime_s = flags.worker_certificate_s};
  if (!flags.proxy_secret_file.empty()) {
    auto secret = gateway::ReadFleetSecret(flags.proxy_secret_file);
    if (!secret.ok())
      return absl::InvalidArgumentError(
          absl::StrCat("--proxy-secret-file: ", secret.status().message()));
    // Whoever guesses it chooses the address that keys are bound to.
    if (secret->size() < kProxySecretBytesMin)
      return absl::InvalidArgumentError(absl::StrCat(
          "--proxy-secret-file: ", flags.proxy_secret_file, " holds ", secret->size(),
          " characters; at least ", kProxySecretBytesMin, " are needed: openssl rand -hex 32"));
    options.proxy_secret = *std::move(secret);
  }
  options.quota_bytes = flags.quota_bytes;
  options.quota_objects = flags.quota_objects;
  for (const std::string& text : flags.proxies) {
    auto range = gateway::AddressRange::Parse(text);
    if (!range.ok())
      return absl::InvalidArgumentError(absl::StrCat("--proxy: ", range.status().message()));
    options.proxies.push_back(*range);
  }
  options.connections_per_address = static_cast<size_t>(flags.connections_per_address);
  options.account.openings_per_minute = flags.openings_per_minute;
  options.core.sessions_per_tenant_max = static_cast<uint32_t>(flags.sessions_per_account);
  options.core.devices_per_tenant_max = static_cast<uint32_t>(flags.devices_per_account);
  // A private worker has nobody else to give its devices to.
  const int idle_s = flags.idle_s.value_or(
      flags.ephemeral ? 0 : static_cast<int>(options.core.sleep_ns / gateway::kSecondNs));
  options.core.sleep_ns = idle_s * gateway::kSecondNs;
  options.core.sleep_lead_ns = std::min(options.core.sleep_lead_ns, options.core.sleep_ns / 2);
  options.core.memory_bytes_max = flags.session_memory_bytes;
  options.core.snapshot_ns = flags.snapshot_every_s.value_or(snapshot_every_s) * gateway::kSecondNs;
  OB_ASSIGN_OR_RETURN(options.credit_limit,
                      CreditLimitFrom("--credit-limit", flags.credit_limit_usd));
  options.core.price_per_hour = {std::llround(flags.price_per_hour_usd * 1e6)};
  return options;
}

// Fails if the folder, which will be removed at the end, holds files.
absl::Status OwnFolder(const ServerFlags& flags, gateway::GatewayOptions& options) {
  std::error_code error;
  if (!flags.data.empty()) {
    bool used =
        std::filesystem::exists(flags.data, error) && !std::filesystem::is_empty(flags.data, error);
    if (!used && !error) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("--ephemeral: ", flags.data, " is not an empty folder"));
  }
  std::string pattern = (std::filesystem::temp_directory_path() / "outboard-XXXXXX").string();
  if (mkdtemp(pattern.data()) == nullptr) return absl::UnavailableError("no temporary folder");
  options.data_folder = pattern;
  return absl::OkStatus();
}

int64_t MemoryOf(const ServerFlags& flags) {
  constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
  return static_cast<int64_t>(std::min(flags.session_memory_bytes, kMost));
}

// Returns the command line of the search process; empty if idle-time search is off. Writes into the
// environment, which tells executors whether they take part, so it must run before any thread
// starts.
std::vector<std::string> ChooseIdleSearch(const ServerFlags& flags) {
  const bool off =
      flags.no_idle_search ||
      (std::getenv("OUTBOARD_IDLE_SEARCH") != nullptr && !IsSet("OUTBOARD_IDLE_SEARCH")) ||
      IsSet("REF") || IsSet("NOOPT") || worker::KernelStorePath().empty();
  setenv("OUTBOARD_IDLE_SEARCH", off ? "0" : "1", 1);
  if (off) return {};
  return {"/proc/self/exe", "search"};
}

// A supervisor on a thread of its own, since executors end with the thread that started them.
class SupervisorThread {
 public:
  // An error of `tell_joined` ends this program like one of the supervisor.
  explicit SupervisorThread(
      worker::SupervisorOptions options,
      const std::function<absl::Status()>& tell_joined = [] { return absl::OkStatus(); })
      : supervisor_((
            options.on_joined = [this, tell_joined] { EndIfBad(tell_joined()); },
            std::move(options))),
        thread_([this] { EndIfBad(supervisor_.Run()); }) {}
  ~SupervisorThread() { Stop(); }
  void Stop() {
    supervisor_.Stop();
    if (thread_.joinable()) thread_.join();
  }
  void Drain(milliseconds limit) { supervisor_.Drain(limit); }
  bool failed() const { return failed_; }

 private:
  // A worker that is refused for good has no reason to stay.
  void EndIfBad(const absl::Status& status) {
    if (status.ok()) return;
    Report(status);
    failed_ = true;
    kill(getpid(), SIGTERM);
  }

  worker::Supervisor supervisor_;
  std::atomic<bool> failed_{false};
  std::thread thread_;
};

constexpr int kServeSessions = 4;  // a program may hold several

// Of a session of a worker whose sessions share this machine's memory; 0: each has its GPU's.
int64_t SharedMemory() {
  const bool has_gpus =
      !runtime::ListDevices(worker::ExecutorOptionsFromEnvironment().device).empty();
  return has_gpus ? 0 : runtime::DefaultMemoryBytesMax();
}

// How many sessions a worker has at a time: as --devices says, else `otherwise`. A GPU serves one
// at a time, whose process is the only one on it.
absl::StatusOr<int> SessionsAtATime(const ServerFlags& flags, int otherwise) {
  const auto gpus = static_cast<int>(
      runtime::ListDevices(worker::ExecutorOptionsFromEnvironment().device).size());
  if (gpus == 0) return flags.devices > 0 ? flags.devices : otherwise;
  if (flags.workers > 1)
    return absl::InvalidArgumentError(
        absl::StrCat("--workers ", flags.workers,
                     ": one worker has all GPUs of this machine; leave it out, or start workers "
                     "with different CUDA_VISIBLE_DEVICES"));
  if (flags.devices > gpus)
    return absl::InvalidArgumentError(
        absl::StrCat("--devices ", flags.devices, ": this machine has ", gpus,
                     gpus == 1 ? " GPU" : " GPUs", ", each of which serves one session at a time"));
  return flags.devices > 0 ? flags.devices : gpus;
}

absl::Status CheckDevice() {
  return runtime::CheckDeviceKind(worker::ExecutorOptionsFromEnvironment().device);
}

absl::Status CheckCompiler() {
  const std::string compiler = worker::ProgramBeside("outboard-compiler");
  if (access(compiler.c_str(), X_OK) == 0) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      compiler, " is not there: a worker compiles with it; copy both programs into one folder"));
}

// Before anything is started: every executor would end with the same words.
absl::Status CheckThisCanWork() {
  OB_RETURN_IF_ERROR(CheckCompiler());
  return CheckDevice();
}

// `serve` has one user, so compiled objects may be cached for the next start. Workers of a shared
// gateway cache objects only when told to: tenants there do not trust each other.
void KeepObjects() {
  if (std::getenv("OUTBOARD_OBJECT_CACHE") != nullptr) return;
  const std::string caches = CacheFolder();
  if (caches.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(caches, ignored);
  setenv("OUTBOARD_OBJECT_CACHE", (caches + "/objects").c_str(), 1);
}

// A port of the gateway is not served any more: this process ends, with an exit code by which
// whatever runs it starts it again.
std::atomic<bool> is_dead{false};
void EndAsDead() {
  is_dead = true;
  kill(getpid(), SIGTERM);
}
int EndCode(const absl::Status& status) {
  const int code = Report(status);
  return is_dead ? 1 : code;
}

constexpr char kAnyMetricsPort[] = "127.0.0.1:0";

// A gateway that cannot start was called wrongly, or another one is in its place.
int ReportStart(const absl::Status& status) {
  Report(status);
  return 2;
}

}  // namespace

int RunGateway(const ServerFlags& flags) {
  RaiseDescriptorLimit();
  auto options = OptionsFor(flags);
  if (!options.ok()) return Report(options.status());
  options->fleet_listen =
      flags.fleet_listen.empty() ? FleetListenFor(flags.listen) : flags.fleet_listen;
  if (absl::Status status =
          session::CheckTarget("--fleet-listen", options->fleet_listen, /*lowest_port=*/0);
      !status.ok())
    return Report(status);
  options->on_dead_listener = EndAsDead;
  options->tls.workers_here = flags.tls;
  options->worker_tokens = flags.worker_tokens;
  auto shown =
      ServerTelemetry::Start(flags.telemetry, telemetry::kInGateway, kAnyMetricsPort, "info");
  if (!shown.ok()) return ReportStart(shown.status());
  auto gateway = gateway::Gateway::Start(*options);
  if (!gateway.ok()) return ReportStart(gateway.status());
  absl::Status status = TellReady(flags.ready, (*gateway)->address(), (*gateway)->fleet_address(),
                                  (*gateway)->fingerprint(), (*shown)->Announce());
  if (status.ok()) status = AwaitEnd(flags.life_fd);
  (*gateway)->Stop(seconds(flags.drain_s));
  return EndCode(status);
}

int RunWorker(const ServerFlags& flags) {
  RaiseDescriptorLimit();  // each session has some, and some for each blob that is on its way
  if (absl::Status status = CheckThisCanWork(); !status.ok()) return Report(status);
  const absl::StatusOr<int> devices = SessionsAtATime(flags, /*otherwise=*/1);
  if (!devices.ok()) return Report(devices.status());
  EndWith(flags.parent_pid);
  if (absl::Status status = session::CheckTarget("--gateway", flags.gateway); !status.ok())
    return Report(status);
  std::string fingerprint;
  auto secret = FleetSecretOfWorker(flags, &fingerprint);
  if (!secret.ok()) return Report(secret.status());
  const auto token = GivenToken(flags);
  if (!token.ok()) return Report(token.status());
  telemetry::HideInLogs(*token);
  const auto protection = ProtectionOfWorker(flags, fingerprint);
  if (!protection.ok()) return Report(protection.status());
  auto shown =
      ServerTelemetry::Start(flags.telemetry, telemetry::kInWorker, kAnyMetricsPort, "info");
  if (!shown.ok()) return ReportStart(shown.status());
  auto identity = worker::OpenIdentity(IdentityPath(flags));
  if (!identity.ok()) {
    if (!flags.identity_file.empty()) return Report(identity.status());
    const absl::string_view why = identity.status().message();
    telemetry::LogWarning("no_identity_kept", {{"message", why}});
    identity = worker::NewIdentity();
  }
  const auto connect = [&](std::shared_ptr<const tls::KeyAndChain> certificate) {
    session::Protection with = *protection;
    with.identity = std::move(certificate);
    return worker::FleetChannels{session::MakeChannel(flags.gateway, with),
                                 session::MakeBulkConnections(flags.gateway, "", with).channels};
  };
  const worker::FleetChannels channels = connect(nullptr);
  if (absl::Status status =
          session::WaitConnected(*channels.control, flags.gateway, kConnectsWithin);
      !status.ok()) {
    return Report(protection->Explain(flags.gateway, status));
  }
  const auto enrolment = protection->UsesTls(flags.gateway)
                             ? std::make_shared<worker::Enrolment>(worker::EnrolmentOptions{
                                   .name = flags.name,
                                   .fleet_secret = *secret,
                                   .token = *token,
                                   .file = IdentityPath(flags) + ".pem",
                                   .connect = connect})
                             : nullptr;
  SupervisorThread supervisor({.gateway = channels.control,
                               .bulk = channels.bulk,
                               .enrolment = enrolment,
                               .name = flags.name,
                               .fleet_secret = *secret,
                               .identity = *identity,
                               .executor = {},
                               .search = ChooseIdleSearch(flags),
                               .devices = *devices,
                               .shared_anyway = flags.shared_anyway,
                               .memory_bytes_max = MemoryOf(flags)},
                              [&] {
                                return TellReady(flags.ready, flags.gateway, "", "",
                                                 (*shown)->Announce());
                              });
  const absl::Status status = AwaitEnd(flags.life_fd);
  if (status.ok() && !supervisor.failed()) supervisor.Drain(seconds(flags.worker_drain_s));
  supervisor.Stop();
  return supervisor.failed() ? 2 : Report(status);
}

int RunServe(const ServerFlags& flags) {
  RaiseDescriptorLimit();
  if (absl::Status status = CheckThisCanWork(); !status.ok()) return Report(status);
  const absl::StatusOr<int> devices = SessionsAtATime(flags, kServeSessions);
  if (!devices.ok()) return Report(devices.status());
  EndWith(flags.parent_pid);
  KeepObjects();
  // All processes end together: a worker that ends stops the gateway, and no client remains that
  // could continue from a snapshot.
  auto options = OptionsFor(flags, /*snapshot_every_s=*/0);
  if (!options.ok()) return Report(options.status());
  options->executors_outlive = false;
  options->on_dead_listener = EndAsDead;
  if (flags.ephemeral) {
    if (absl::Status status = OwnFolder(flags, *options); !status.ok()) return Report(status);
  }
  const std::vector<std::string> search = ChooseIdleSearch(flags);
  // One user's own, often started by that user's program: it opens no port, and says nothing on
  // the terminal unless something is wrong. Where other machines reach it, warnings are
  // printed too: what is refused, and which part of the sandbox is missing.
  const char* const log_level = session::IsOnThisMachine(flags.listen) ? "error" : "warning";
  auto shown = ServerTelemetry::Start(flags.telemetry, telemetry::kInAll, "off", log_level);
  if (!shown.ok()) return ReportStart(shown.status());
  int code = 0;
  {
    auto gateway = gateway::Gateway::Start(*options);
    if (!gateway.ok()) return ReportStart(gateway.status());
    SupervisorThread supervisor({.gateway = (*gateway)->InProcessFleetChannel(),
                                 .name = "serve",
                                 .fleet_secret = (*gateway)->fleet_secret(),
                                 .executor = {},
                                 .search = search,
                                 .devices = *devices,
                                 .shared_anyway = flags.shared_anyway,
                                 .is_single_account = flags.no_auth,
                                 // Sessions of one user share what there is as they come.
                                 .memory_bytes_max = flags.session_memory_bytes > 0
                                                         ? MemoryOf(flags)
                                                         : SharedMemory(),
                                 .one_user = true});
    absl::Status status;
    if (!(*gateway)->AwaitDevices(1, kWorkersJoinWithin)) {
      status = absl::UnavailableError("the worker did not join");
    }
    if (status.ok())
      status = TellReady(flags.ready, (*gateway)->address(), "", (*gateway)->fingerprint(),
                         (*shown)->Announce());
    if (status.ok()) status = AwaitEnd(flags.life_fd);
    (*gateway)->Stop(milliseconds(0));
    supervisor.Stop();
    code = EndCode(status);
  }
  if (flags.ephemeral) {
    std::error_code ignored;
    std::filesystem::remove_all(options->data_folder, ignored);
  }
  return code;
}

int RunUp(ServerFlags flags) {
  RaiseDescriptorLimit();
  if (absl::Status status = CheckThisCanWork(); !status.ok()) return Report(status);
  const absl::StatusOr<int> devices = SessionsAtATime(flags, /*otherwise=*/1);
  if (!devices.ok()) return Report(devices.status());
  flags.devices = *devices;
  flags.listen = absl::StrCat(flags.host, ":", flags.port);
  // The workers share this machine without coordinating, so each gets an equal part of the memory.
  if (flags.session_memory_bytes == 0 && SharedMemory() > 0) {
    flags.session_memory_bytes =
        static_cast<uint64_t>(runtime::DefaultMemoryBytesMax() / (flags.workers * flags.devices));
  }
  auto options = OptionsFor(flags);
  if (!options.ok()) return Report(options.status());
  options->fleet_listen = "127.0.0.1:0";
  options->on_dead_listener = EndAsDead;
  auto shown =
      ServerTelemetry::Start(flags.telemetry, telemetry::kInGateway, kAnyMetricsPort, "info");
  if (!shown.ok()) return ReportStart(shown.status());
  auto gateway = gateway::Gateway::Start(*options);
  if (!gateway.ok()) return ReportStart(gateway.status());

  const std::vector<std::vector<int>> cores = CoresOfWorkers(flags.workers);
  std::vector<Child> workers;
  int restarts = 0;
  auto start = [&](int index) -> absl::Status {
    std::vector<std::string> args{"worker",
                                  "--gateway",
                                  (*gateway)->fleet_address(),
                                  "--name",
                                  absl::StrCat("local-", index),
                                  "--identity-file",
                                  absl::StrCat(options->data_folder, "/workers/local-", index),
                                  "--devices",
                                  absl::StrCat(flags.devices),
                                  "--metrics-listen",
                                  WorkerMetricsListen(flags.telemetry, index),
                                  "--log-format",
                                  flags.telemetry.log_format,
                                  "--quiet"};
    if (!flags.telemetry.metrics_token_file.empty())
      args.insert(args.end(), {"--metrics-token-file", flags.telemetry.metrics_token_file});
    if (!flags.telemetry.log_level.empty())
      args.insert(args.end(), {"--log-level", flags.telemetry.log_level});
    if (flags.no_idle_search) args.push_back("--no-idle-search");
    if (flags.shared_anyway) args.push_back("--shared-anyway");
    // A file where there is one: other processes of this user can read an environment.
    std::vector<std::string> environment;
    if (options->fleet_secret.empty()) {
      args.push_back("--fleet-secret-file");
      args.push_back(gateway::FleetSecretPath(options->data_folder));
    } else {
      environment.push_back(absl::StrCat("OUTBOARD_FLEET_SECRET=", options->fleet_secret));
    }
    auto child =
        Child::Start(std::move(args), std::move(environment), cores[static_cast<size_t>(index)]);
    if (!child.ok()) return child.status();
    if (static_cast<size_t>(index) < workers.size()) {
      workers[static_cast<size_t>(index)] = *std::move(child);
    } else {
      workers.push_back(*std::move(child));
    }
    return absl::OkStatus();
  };
  absl::Status status;
  for (int i = 0; i < flags.workers && status.ok(); ++i) status = start(i);
  if (status.ok() && !(*gateway)->AwaitDevices(static_cast<uint32_t>(flags.workers * flags.devices),
                                               kWorkersJoinWithin)) {
    status = absl::UnavailableError(
        absl::StrCat("only ", (*gateway)->devices_total(), " devices of ", flags.workers,
                     " workers joined within ", kWorkersJoinWithin.count(), " s"));
  }
  if (status.ok())
    status = TellReady(flags.ready, (*gateway)->address(), "", (*gateway)->fingerprint(),
                       (*shown)->Announce());
  if (status.ok()) {
    status = AwaitEnd(flags.life_fd, [&]() -> absl::Status {
      for (size_t i = 0; i < workers.size(); ++i) {
        if (workers[i].pid() <= 0 || waitpid(workers[i].pid(), nullptr, WNOHANG) <= 0) continue;
        workers[i].Reaped();
        if (++restarts > kRestartsMax)
          return absl::InternalError("workers keep failing; see their messages");
        telemetry::LogWarning("worker_restarted", {{"worker", absl::StrCat("local-", i)}});
        if (absl::Status again = start(static_cast<int>(i)); !again.ok()) return again;
      }
      return absl::OkStatus();
    });
  }
  (*gateway)->Stop(milliseconds(0));
  for (Child& worker : workers) worker.Stop();
  return EndCode(status);
}

}  // namespace outboard::cli
