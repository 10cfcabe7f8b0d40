#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/cores.h"
#include "base/environment.h"
#include "base/host_port.h"
#include "cli/commands.h"
#include "cli/node/node_worker.h"
#include "cli/server_options.h"
#include "cli/telemetry.h"
#include "client/session/address.h"
#include "client/session/link/bulk.h"
#include "client/session/link/grpc_link.h"
#include "client/session/link/private_serve.h"
#include "gateway/server/fleet_secret.h"
#include "gateway/server/gateway.h"
#include "runtime/devices.h"
#include "telemetry/log.h"
#include "worker/devices/device_rates.h"
#include "worker/init/node_init.h"
#include "worker/process/child_process.h"
#include "worker/receipts/lease_counter.h"
#include "worker/sandbox/granted_parts.h"
#include "worker/supervisor/core_sets.h"
#include "worker/supervisor/driver_trial.h"
#include "worker/supervisor/join/identity.h"
#include "worker/supervisor/supervisor.h"

namespace outboard::cli {

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr seconds kWorkersJoinWithin{20};
// Of workers that end by themselves, before `up` gives up as failed.
constexpr int kRestartsMax = 16;

// How long a worker may take that first tries its driver (worker/supervisor/driver_trial.h) and
// measures its GPUs.
seconds DriverTakesAtMost() {
  if (!worker::NeedsDriver()) return seconds(0);
  const seconds measures(worker::MeasuresGpusAtStart() ? worker::kMeasureAtStartWithin
                                                       : seconds(0));
  return measures + worker::DriverTrialTakesAtMost(worker::ExecutorOptionsFromEnvironment());
}

// Whether a signal or the parent has asked for the end, for AwaitEnd to take note of.
bool IsToldToEnd(int life_fd) {
  sigset_t pending;
  pollfd life = {life_fd, POLLIN, 0};  // poll ignores a negative descriptor
  return (sigpending(&pending) == 0 &&
          (sigismember(&pending, SIGINT) == 1 || sigismember(&pending, SIGTERM) == 1)) ||
         poll(&life, 1, 0) > 0;
}

// Errors: CANCELLED  told to end; UNAVAILABLE  not so many joined in time
absl::Status AwaitJoin(gateway::Gateway& gateway, uint32_t devices, int workers, int life_fd) {
  using Clock = std::chrono::steady_clock;
  const seconds most = kWorkersJoinWithin + DriverTakesAtMost();
  const Clock::time_point begun = Clock::now();
  Clock::time_point tells = begun + kWorkersJoinWithin;
  while (!gateway.AwaitDevices(devices, milliseconds(100))) {
    if (IsToldToEnd(life_fd)) return absl::CancelledError("told to end");
    const Clock::time_point now = Clock::now();
    const auto waited = std::chrono::duration_cast<seconds>(now - begun);
    if (waited >= most)
      return absl::UnavailableError(absl::StrCat("only ", gateway.devices_total(), " devices of ",
                                                 workers, " workers joined within ", most.count(),
                                                 " s"));
    if (now < tells) continue;
    std::fprintf(stderr,
                 "outboard: the driver of OUTBOARD_DEVICE has not started after %lld s; it has "
                 "%lld s\n",
                 static_cast<long long>(waited.count()), static_cast<long long>(most.count()));
    tells = now + kWorkersJoinWithin;
  }
  return absl::OkStatus();
}

// Where the workers of `up` show their metrics: at the ports after the gateway's.
std::string WorkerMetricsListen(const TelemetryFlags& flags, int index) {
  const std::string& listen = flags.metrics_listen;
  const std::optional<HostPort> place = SplitHostPort(listen);
  if (!place.has_value() || place->port == 0) return listen.empty() ? "127.0.0.1:0" : listen;
  // Beyond the last port there is none, and the worker says so.
  return absl::StrCat(listen.substr(0, listen.rfind(':')), ":", place->port + 1 + index);
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

// A supervisor on a thread of its own, since executors end with the thread that started them.
class SupervisorThread {
 public:
  // An error of `tell_joined` ends this program like one of the supervisor.
  explicit SupervisorThread(
      worker::SupervisorOptions options,
      const std::function<absl::Status()>& tell_joined = [] { return absl::OkStatus(); })
      : supervisor_((
            options.on_joined = [this, tell_joined] { EndIfBad(tell_joined()); },
            options.on_restart =
                [this] {
                  restarts_ = true;
                  kill(getpid(), SIGTERM);
                },
            std::move(options))),
        thread_([this] { EndIfBad(supervisor_.Run()); }) {}
  ~SupervisorThread() { Stop(); }
  void Stop() {
    supervisor_.Stop();
    if (thread_.joinable()) thread_.join();
  }
  void StayAway() { supervisor_.StayAway(); }
  void ReleaseReserved() { supervisor_.ReleaseReserved(); }
  void Drain(milliseconds limit) { supervisor_.Drain(limit); }
  bool failed() const { return failed_; }
  const absl::Status& failure() const { return failure_; }  // after Stop
  bool restarts() const { return restarts_; }  // the gateway has asked for it

 private:
  // A worker that is refused for good has no reason to stay.
  void EndIfBad(const absl::Status& status) {
    if (status.ok()) return;
    Report(status);
    failure_ = status;
    failed_ = true;
    kill(getpid(), SIGTERM);
  }

  worker::Supervisor supervisor_;
  std::atomic<bool> failed_{false}, restarts_{false};
  absl::Status failure_;  // of Run's thread, until that has ended
  std::thread thread_;
};

// `serve` has one user, so compiled objects are cached for the next start. Workers of a shared
// gateway cache objects only when told to, and then in a folder for each account.
void KeepObjects() {
  if (std::getenv("OUTBOARD_OBJECT_CACHE") != nullptr) return;
  const std::string caches = CacheFolder();
  if (caches.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(caches, ignored);
  setenv("OUTBOARD_OBJECT_CACHE", (caches + "/objects").c_str(), 1);
}

// A port of the gateway is not served any more, or another gateway has its folder: this process
// ends, with an exit code by which whatever runs it starts it again.
std::atomic<bool> is_dead{false};
void EndAsDead() {
  is_dead = true;
  kill(getpid(), SIGTERM);
}
int EndCode(const absl::Status& status) {
  const int code = Report(status);
  return is_dead ? 1 : code;
}

// Reads the price file again; one that is wrong, or lacks a class in use, changes nothing. Nothing
// to call: there is no such file.
std::function<void()> RereadsPrices(const ServerFlags& flags, gateway::Gateway& gateway) {
  if (flags.prices_file.empty()) return {};
  return [&gateway, file = flags.prices_file] {
    auto prices = PricesFrom(file);
    absl::Status status = prices.status();
    if (status.ok()) status = gateway.SetPrices(*prices);
    if (status.ok())
      telemetry::LogInfo("prices_read", {{"classes", (*prices)->Names()}});
    else
      telemetry::LogError("prices_refused",
                          {{"message", status.ToString()}, {"effect", "the old prices stay"}});
  };
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
  if (!flags.prices_file.empty()) BlockHangups();
  auto options = OptionsFor(flags);
  if (!options.ok()) return Report(options.status());
  options->fleet_listen =
      flags.fleet_listen.empty() ? FleetListenFor(flags.listen) : flags.fleet_listen;
  if (absl::Status status =
          session::CheckTarget("--fleet-listen", options->fleet_listen, /*lowest_port=*/0);
      !status.ok())
    return Report(status);
  options->on_dead_listener = options->on_replaced = EndAsDead;
  options->tls.workers_here = flags.tls;
  options->worker_tokens = flags.worker_tokens;
  options->node_power_hook = flags.node_power_hook;
  options->node_joins_within_s = flags.node_joins_within_s;
  options->tpm_roots_file = flags.tpm_roots_file;
  auto shown =
      ServerTelemetry::Start(flags.telemetry, telemetry::kInGateway, kAnyMetricsPort, "info");
  if (!shown.ok()) return ReportStart(shown.status());
  auto gateway = gateway::Gateway::Start(*options);
  if (!gateway.ok()) return ReportStart(gateway.status());
  absl::Status status = TellReady(flags.ready, (*gateway)->address(), (*gateway)->fleet_address(),
                                  (*gateway)->fingerprint(), (*shown)->Announce());
  if (status.ok()) status = AwaitEnd(flags.life_fd, {}, RereadsPrices(flags, **gateway));
  (*gateway)->Stop(seconds(flags.drain_s));
  return EndCode(status);
}

// How a worker reaches its gateway, and what it shows there.
struct WorkerJoin {
  std::string gateway;
  std::string secret;  // the fleet's; of a machine of an account's own that account's key
  std::string token;
  session::Protection protection;
};

// Where clients connect, with a client's environment.
absl::StatusOr<WorkerJoin> JoinOfOwn(const ServerFlags& flags) {
  if (!flags.fleet_secret_file.empty() || !flags.token_file.empty())
    return absl::InvalidArgumentError(
        "--own: a machine of your own joins with CLOUD_KEY; leave out --fleet-secret-file and "
        "--token-file");
  WorkerJoin join{.gateway = flags.gateway, .secret = TakeSecret("CLOUD_KEY")};
  const char* const host = std::getenv("CLOUD_HOST");
  if (join.gateway.empty() && host != nullptr) join.gateway = host;
  if (join.gateway.empty())
    return absl::InvalidArgumentError(
        "--own needs the address at which clients connect: --gateway, or CLOUD_HOST");
  if (join.secret.empty())
    return absl::InvalidArgumentError("--own needs a key of your account in CLOUD_KEY");
  OB_RETURN_IF_ERROR(session::CheckKeyText("CLOUD_KEY", join.secret));
  telemetry::HideInLogs(join.secret);
  const bool is_told = flags.insecure || flags.tls || !flags.tls_ca_file.empty() ||
                       !flags.tls_fingerprint.empty();
  OB_ASSIGN_OR_RETURN(join.protection, is_told ? ProtectionOfWorker(flags, "")
                                               : session::Protection::FromEnvironment());
  return join;
}

// `claim`: of a node, which has no fleet secret, and its claim is its token.
absl::StatusOr<WorkerJoin> JoinOfFleet(const ServerFlags& flags,
                                       const std::optional<std::string>& claim) {
  if (flags.gateway.empty())
    return absl::InvalidArgumentError(
        "--gateway is missing: where workers join; see `outboard worker --help`");
  WorkerJoin join{.gateway = flags.gateway};
  std::string fingerprint;
  if (claim.has_value()) {
    join.token = *claim;
  } else {
    OB_ASSIGN_OR_RETURN(join.secret, FleetSecretOfWorker(flags, &fingerprint));
    OB_ASSIGN_OR_RETURN(join.token, GivenToken(flags));
  }
  telemetry::HideInLogs(join.token);
  OB_ASSIGN_OR_RETURN(join.protection, ProtectionOfWorker(flags, fingerprint));
  return join;
}

// By which the gateway knows the worker again. Where no file can be had for it, and none was named,
// the worker serves all the same, and is a new one at its next start.
absl::StatusOr<std::string> IdentityOfWorker(const ServerFlags& flags) {
  auto identity = worker::OpenIdentity(IdentityPath(flags));
  if (identity.ok() || !flags.identity_file.empty()) return identity;
  const absl::string_view why = identity.status().message();
  telemetry::LogWarning("no_identity_kept", {{"message", why}});
  return worker::NewIdentity();
}

using Connect = std::function<worker::FleetChannels(std::shared_ptr<const tls::KeyAndChain>)>;

// Connects to the gateway, with a certificate or without. A node's log goes by the newest
// connection that has one; `node_log` is null where there is no log to send.
Connect ConnectTo(const WorkerJoin& join, std::shared_ptr<NodeLogStream> node_log) {
  return [target = join.gateway, protection = join.protection,
          node_log](std::shared_ptr<const tls::KeyAndChain> certificate) {
    session::Protection with = protection;
    with.identity = std::move(certificate);
    worker::FleetChannels made{session::MakeChannel(target, with),
                               session::MakeBulkConnections(target, "", with).channels};
    if (node_log != nullptr && with.identity != nullptr) node_log->Use(made.control);
    return made;
  };
}

// How the worker gets its certificate; null: it joins without one. `node` has none without being
// let in: one that is not ends, says why, and is started again after a while (worker/init).
absl::StatusOr<std::shared_ptr<worker::Enrolment>> Enrol(const ServerFlags& flags,
                                                         const WorkerJoin& join,
                                                         const std::optional<NodeStart>& node,
                                                         const Connect& connect) {
  if (flags.own || !join.protection.UsesTls(join.gateway)) {
    if (!node.has_value()) return nullptr;
    return absl::InvalidArgumentError("a node joins by TLS: give --tls-fingerprint or --tls-ca");
  }
  auto enrolment = std::make_shared<worker::Enrolment>(worker::EnrolmentOptions{
      .name = flags.name,
      .node = node.has_value() ? std::optional(node->facts) : std::nullopt,
      .tpm = node.has_value() ? node->tpm : std::nullopt,
      .fleet_secret = join.secret,
      .token = join.token,
      .file = IdentityPath(flags) + ".pem",
      .connect = connect});
  if (node.has_value()) OB_RETURN_IF_ERROR(enrolment->Channels().status());
  return enrolment;
}

int RunWorker(const ServerFlags& given) {
  ServerFlags flags = given;
  RaiseDescriptorLimit();  // each session has some, and some for each blob that is on its way
  if (!flags.node_folder.empty())
    StartWithDriver(flags.node_folder, {flags.life_fd, flags.ready.fd});
  if (absl::Status status = CheckThisCanWork(); !status.ok()) return Report(status);
  const absl::StatusOr<int> devices = DevicesOf(flags, /*otherwise=*/1);
  if (!devices.ok()) return Report(devices.status());
  EndWith(flags.parent_pid);
  const auto node = StartOfNode(flags);
  if (!node.ok()) return Report(node.status());
  const bool is_node = node->has_value();
  const auto join =
      flags.own ? JoinOfOwn(flags)
                : JoinOfFleet(flags, is_node ? std::optional((*node)->claim) : std::nullopt);
  if (!join.ok()) return Report(join.status());
  if (absl::Status status = session::CheckTarget("--gateway", join->gateway); !status.ok())
    return Report(status);
  auto links = LinksOf(flags);
  if (!links.ok()) return Report(links.status());
  auto shown =
      ServerTelemetry::Start(flags.telemetry, telemetry::kInWorker, kAnyMetricsPort, "info");
  if (!shown.ok()) return ReportStart(shown.status());
  const auto identity = IdentityOfWorker(flags);
  if (!identity.ok()) return Report(identity.status());
  const auto receipt_key = worker::OpenReceiptKey(IdentityPath(flags), *identity);
  if (!receipt_key.ok()) return Report(receipt_key.status());
  const Connect connect = ConnectTo(
      *join, is_node ? std::make_shared<NodeLogStream>(flags.node_folder) : nullptr);
  const worker::FleetChannels channels = connect(nullptr);
  if (absl::Status status =
          session::WaitConnected(*channels.control, join->gateway, kConnectsWithin);
      !status.ok()) {
    return Report(join->protection.Explain(join->gateway, status));
  }
  const auto enrolment = Enrol(flags, *join, *node, connect);
  if (!enrolment.ok()) return Report(enrolment.status());
  // Not before it has joined: a driver may be large, and the way to it slow.
  std::optional<DriverFetch> driver;
  if (is_node)
    driver.emplace(**enrolment, **node, flags.node_folder, [] { kill(getpid(), SIGTERM); });
  SupervisorThread supervisor({.gateway = channels.control,
                               .bulk = channels.bulk,
                               .enrolment = *enrolment,
                               .name = flags.name,
                               .fleet_secret = join->secret,
                               .identity = *identity,
                               .executor = {},
                               .receipt_key = *receipt_key,
                               .search = ChooseIdleSearch(flags),
                               .devices = *devices,
                               .shared_anyway = flags.shared_anyway,
                               .memory_bytes_max = MemoryOf(flags),
                               .memory_bytes_reserved = is_node ? driver->memory_bytes() : 0,
                               .links = *std::move(links)},
                              [&] {
                                if (is_node) {
                                  NoteJoined(flags.node_folder);
                                  driver->Begin([&] { supervisor.ReleaseReserved(); });
                                }
                                return TellReady(flags.ready, join->gateway, "", "",
                                                 (*shown)->Announce());
                              });
  const absl::Status status = AwaitEnd(flags.life_fd);
  if (is_node) driver->End();  // it calls the supervisor
  if (status.ok() && !supervisor.failed()) supervisor.Drain(seconds(flags.worker_drain_s));
  supervisor.Stop();
  if (is_node && supervisor.restarts()) return worker::kExitRestartMachine;
  if (is_node && driver->IsReady() && !supervisor.failed()) return worker::kExitRestartWorker;
  if (is_node && LeaveGpus(flags.node_folder, supervisor.failure()))
    return worker::kExitRestartWorker;
  return supervisor.failed() ? 2 : Report(status);
}

int RunServe(const ServerFlags& flags) {
  RaiseDescriptorLimit();
  if (!flags.prices_file.empty()) BlockHangups();
  if (absl::Status status = CheckThisCanWork(); !status.ok()) return Report(status);
  const absl::StatusOr<int> devices = DevicesOf(flags, session::kServeDevices);
  if (!devices.ok()) return Report(devices.status());
  EndWith(flags.parent_pid);
  KeepObjects();
  // All processes end together: a worker that ends stops the gateway, and no client remains that
  // could continue from a snapshot.
  auto options = OptionsFor(flags, /*snapshot_every_s=*/0);
  if (!options.ok()) return Report(options.status());
  options->executors_outlive = false;
  options->on_dead_listener = options->on_replaced = EndAsDead;
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
    absl::Status status = AwaitJoin(**gateway, 1, 1, flags.life_fd);
    if (status.ok())
      status = TellReady(flags.ready, (*gateway)->address(), "", (*gateway)->fingerprint(),
                         (*shown)->Announce());
    if (status.ok() || absl::IsCancelled(status))
      status = AwaitEnd(flags.life_fd, {}, RereadsPrices(flags, **gateway));
    supervisor.StayAway();
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

// The worker processes of `up`: each has its part of the cores, and one that ends is started again.
// Errors: those of Child::Start; of RestartEnded also INTERNAL: they ended more than kRestartsMax
//         times
class LocalWorkers {
 public:
  LocalWorkers(const ServerFlags& flags, const gateway::GatewayOptions& options,
               std::string fleet_address)
      : flags_(flags),
        options_(options),
        fleet_address_(std::move(fleet_address)),
        cores_(CoresOfWorkers(flags.workers)) {}

  absl::Status StartAll() {
    for (int index = 0; index < flags_.workers; ++index) {
      OB_ASSIGN_OR_RETURN(Child worker, Start(index));
      workers_.push_back(std::move(worker));
    }
    return absl::OkStatus();
  }

  // After a SIGCHLD. INTERNAL: they end again and again.
  absl::Status RestartEnded() {
    for (size_t i = 0; i < workers_.size(); ++i) {
      if (workers_[i].pid() <= 0 || waitpid(workers_[i].pid(), nullptr, WNOHANG) <= 0) continue;
      workers_[i].Reaped();
      if (++restarts_ > kRestartsMax)
        return absl::InternalError("workers keep failing; see their messages");
      telemetry::LogWarning("worker_restarted", {{"worker", absl::StrCat("local-", i)}});
      OB_ASSIGN_OR_RETURN(workers_[i], Start(static_cast<int>(i)));
    }
    return absl::OkStatus();
  }

  void Stop() {
    for (Child& worker : workers_) worker.Stop();
  }

 private:
  absl::StatusOr<Child> Start(int index) const {
    std::vector<std::string> args{"worker",
                                  "--gateway",
                                  fleet_address_,
                                  "--name",
                                  absl::StrCat("local-", index),
                                  "--identity-file",
                                  absl::StrCat(options_.data_folder, "/workers/local-", index),
                                  "--devices",
                                  absl::StrCat(flags_.devices),
                                  "--data-address",
                                  "127.0.0.1:0",
                                  "--metrics-listen",
                                  WorkerMetricsListen(flags_.telemetry, index),
                                  "--log-format",
                                  flags_.telemetry.log_format,
                                  "--quiet"};
    if (!flags_.telemetry.metrics_token_file.empty())
      args.insert(args.end(), {"--metrics-token-file", flags_.telemetry.metrics_token_file});
    if (!flags_.telemetry.log_level.empty())
      args.insert(args.end(), {"--log-level", flags_.telemetry.log_level});
    if (flags_.no_idle_search) args.push_back("--no-idle-search");
    if (flags_.shared_anyway) args.push_back("--shared-anyway");
    // A file where there is one: other processes of this user can read an environment.
    std::vector<std::string> environment;
    if (options_.fleet_secret.empty()) {
      args.push_back("--fleet-secret-file");
      args.push_back(gateway::FleetSecretPath(options_.data_folder));
    } else {
      environment.push_back(absl::StrCat("OUTBOARD_FLEET_SECRET=", options_.fleet_secret));
    }
    return Child::Start(std::move(args), std::move(environment),
                        cores_[static_cast<size_t>(index)]);
  }

  const ServerFlags& flags_;
  const gateway::GatewayOptions& options_;
  const std::string fleet_address_;
  const std::vector<std::vector<int>> cores_;  // by worker
  std::vector<Child> workers_;
  int restarts_ = 0;
};

int RunUp(ServerFlags flags) {
  RaiseDescriptorLimit();
  if (!flags.prices_file.empty()) BlockHangups();
  if (absl::Status status = CheckThisCanWork(); !status.ok()) return Report(status);
  const absl::StatusOr<int> devices = DevicesOf(flags, /*otherwise=*/1);
  if (!devices.ok()) return Report(devices.status());
  flags.devices = *devices;
  if (!flags.host.empty() || flags.port.has_value())
    flags.listen = absl::StrCat(flags.host.empty() ? "127.0.0.1" : flags.host, ":",
                                flags.port.value_or(6667));
  // The workers share this machine without coordinating, so each gets an equal part of the memory.
  if (flags.session_memory_bytes == 0 && SharedMemory() > 0) {
    flags.session_memory_bytes =
        static_cast<uint64_t>(runtime::DefaultMemoryBytesMax() / (flags.workers * flags.devices));
  }
  auto options = OptionsFor(flags);
  if (!options.ok()) return Report(options.status());
  options->fleet_listen = "127.0.0.1:0";
  options->on_dead_listener = options->on_replaced = EndAsDead;
  auto shown =
      ServerTelemetry::Start(flags.telemetry, telemetry::kInGateway, kAnyMetricsPort, "info");
  if (!shown.ok()) return ReportStart(shown.status());
  auto gateway = gateway::Gateway::Start(*options);
  if (!gateway.ok()) return ReportStart(gateway.status());

  LocalWorkers workers(flags, *options, (*gateway)->fleet_address());
  absl::Status status = workers.StartAll();
  if (status.ok())
    status = AwaitJoin(**gateway, static_cast<uint32_t>(flags.workers * flags.devices),
                       flags.workers, flags.life_fd);
  if (status.ok())
    status = TellReady(flags.ready, (*gateway)->address(), "", (*gateway)->fingerprint(),
                       (*shown)->Announce());
  if (status.ok() || absl::IsCancelled(status))
    status = AwaitEnd(
        flags.life_fd, [&] { return workers.RestartEnded(); }, RereadsPrices(flags, **gateway));
  (*gateway)->Stop(milliseconds(0));
  workers.Stop();
  return EndCode(status);
}

}  // namespace outboard::cli
