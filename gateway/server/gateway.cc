#include "gateway/server/gateway.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/thread_slice.h"
#include "gateway/accounts/accounts.h"
#include "gateway/accounts/folder_turn.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/accounts/worker_quarantine.h"
#include "gateway/accounts/worker_tokens.h"
#include "gateway/base/clock.h"
#include "gateway/base/limits.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/blobs/blob_store.h"
#include "gateway/blobs/limits.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/host.h"
#include "gateway/doors/account_limits.h"
#include "gateway/doors/connection_table.h"
#include "gateway/doors/key_door.h"
#include "gateway/doors/refusals.h"
#include "gateway/groups/group_snapshots.h"
#include "gateway/ledger/ledger.h"
#include "gateway/nodes/driver_rows.h"
#include "gateway/nodes/node_enrolment.h"
#include "gateway/nodes/node_keeper.h"
#include "gateway/nodes/node_logs.h"
#include "gateway/nodes/power_hook.h"
#include "gateway/observe/driver_log.h"
#include "gateway/observe/gateway_figures.h"
#include "gateway/observe/operator_socket.h"
#include "gateway/proof/auditor.h"
#include "gateway/proof/head_signer.h"
#include "gateway/proof/receipt_rows.h"
#include "gateway/queue/fair_shares.h"
#include "gateway/server/authenticator.h"
#include "gateway/server/blob_service.h"
#include "gateway/server/fleet_secret.h"
#include "gateway/server/folder_lock.h"
#include "gateway/server/grpc_listener.h"
#include "gateway/server/key_uses.h"
#include "gateway/server/ledger_writer.h"
#include "gateway/server/listener_watch.h"
#include "gateway/server/process_host.h"
#include "gateway/server/services.h"
#include "gateway/streams/local_attach.h"
#include "gateway/tls/fleet_door.h"
#include "gateway/tls/server_certificates.h"
#include "gateway/tls/trusted_proxy.h"
#include "gateway/tls/worker_admission.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"
#include "wire/limits.h"
#include "wire/tls/credentials.h"

namespace outboard::gateway {

namespace {

constexpr std::chrono::hours kAuditEvery{1};
// Of the books, which LedgerWriter syncs for all of them.
constexpr storage::OpenOptions kWrittenByOne{.synced_by_caller = true};
// Most ledgers are read within this; of a larger one the gateway starts meanwhile.
constexpr std::chrono::seconds kFirstAuditWithin{2};

}  // namespace

std::string AccountsPath(const std::string& data_folder) { return data_folder + "/outboard.db"; }

class Gateway::Impl {
 public:
  explicit Impl(GatewayOptions options) : options_(std::move(options)) {}
  ~Impl() { Stop(std::chrono::milliseconds(0)); }

  absl::Status Start() {
    if (options_.no_auth && !IsLocalAddress(options_.listen))
      return absl::InvalidArgumentError(absl::StrCat(
          "without keys only a unix socket or a loopback address may be listened on, not ",
          options_.listen));
    const std::string path = AccountsPath(options_.data_folder);
    OB_RETURN_IF_ERROR(TakeFolder());
    OB_RETURN_IF_ERROR(OpenStores(path));
    OB_RETURN_IF_ERROR(OpenDoors(path));
    OB_RETURN_IF_ERROR(BeginToWrite(path));
    BeginAudits(path);
    OB_RETURN_IF_ERROR(MakeDriver(path));
    OB_RETURN_IF_ERROR(TakeOver());
    return Serve();
  }

  // Makes the data folder where it is not there, and keeps other gateways out of it.
  absl::Status TakeFolder() {
    std::error_code error;
    const bool is_new = std::filesystem::create_directories(options_.data_folder, error);
    if (is_new)
      std::filesystem::permissions(options_.data_folder, std::filesystem::perms::owner_all, error);
    if (error)
      return absl::UnavailableError(absl::StrCat("cannot make the data folder ",
                                                 options_.data_folder, ": ", error.message()));
    OB_ASSIGN_OR_RETURN(folder_lock_, FolderLock::Take(options_.data_folder, WallNow()));
    if (options_.fleet_secret.empty()) {
      OB_ASSIGN_OR_RETURN(options_.fleet_secret, EnsureFleetSecret(options_.data_folder));
    }
    telemetry::HideInLogs(options_.fleet_secret);
    return absl::OkStatus();
  }

  // Of money and sessions nothing is written before BeginToWrite.
  absl::Status OpenStores(const std::string& path) {
    OB_ASSIGN_OR_RETURN(accounts_, Accounts::Open(path));
    OB_ASSIGN_OR_RETURN(ledger_, Ledger::Open(path, kWrittenByOne));
    OB_ASSIGN_OR_RETURN(rows_, SessionRows::Open(path, kWrittenByOne));
    OB_ASSIGN_OR_RETURN(
        blobs_,
        BlobStore::Open(options_.data_folder + "/blobs",
                        {.quota_bytes = options_.quota_bytes,
                         .objects_max = options_.quota_objects,
                         .list_entries_max =
                             std::max<uint64_t>(2 * options_.quota_objects, wire::kBlobChunksMax),
                         .charges = {.object_bytes_min = kObjectBytesMin,
                                     .list_entry_bytes = kListEntryBytes}}));
    OB_ASSIGN_OR_RETURN(blob_retention_, BlobRetention::Open(blobs_.get(), path, WallNow));
    return absl::OkStatus();
  }

  // What callers meet first: whose key it is, and what its account may have at a time.
  absl::Status OpenDoors(const std::string& path) {
    std::optional<TenantId> everybody;
    if (options_.no_auth) {
      OB_ASSIGN_OR_RETURN(const Tenant tenant, accounts_->EnsureTenant("local", WallNow()));
      everybody = tenant.id;
    }
    OB_ASSIGN_OR_RETURN(auto uses, Accounts::Open(path));
    key_uses_ = std::make_unique<KeyUses>(std::move(uses));
    // Of its own, so that nobody who shows a key waits for a write.
    OB_ASSIGN_OR_RETURN(keys_, Accounts::Open(path));
    authenticator_ =
        std::make_unique<Authenticator>(keys_.get(), key_uses_.get(), everybody,
                                        options_.fleet_secret, TrustedProxy(options_.proxy_secret));
    account_limits_ = std::make_unique<AccountLimits>(options_.account, &refusals_);
    door_ = std::make_unique<KeyDoor>(authenticator_.get(), account_limits_.get(), &refusals_);
    host_.SetDoor(door_.get());
    fleet_door_ = std::make_unique<FleetDoor>(
        [this](std::string_view secret) { return authenticator_->Worker(secret); });
    return absl::OkStatus();
  }

  // From now on the folder is this gateway's to write, by one writer.
  absl::Status BeginToWrite(const std::string& path) {
    OB_ASSIGN_OR_RETURN(const FolderTurn turn, FolderTurn::Take(path));
    OB_ASSIGN_OR_RETURN(receipts_, ReceiptRows::Open(path, kWrittenByOne));
    for (storage::TableOwner* const owner :
         std::initializer_list<storage::TableOwner*>{ledger_.get(), rows_.get(), receipts_.get()})
      owner->GuardWrites(turn.Guard());
    // Those of the gateway before this one: no lease runs yet (docs/decisions/080-holds.md).
    OB_ASSIGN_OR_RETURN(const int64_t holds, ledger_->EndAllHolds());
    if (holds > 0) telemetry::LogInfo("holds_ended_at_start", {{"sessions", holds}});
    OB_ASSIGN_OR_RETURN(signing::SigningKey key,
                        signing::SigningKey::Open(LedgerKeyPath(options_.data_folder)));
    const auto sync = [path] { return storage::SyncLog(path); };
    heads_ = std::make_unique<HeadSigner>(ledger_.get(), std::move(key), sync);
    ledger_writer_ = std::make_unique<LedgerWriter>(ledger_.get(), rows_.get(),
                                                    options_.credit_limit, heads_.get(),
                                                    receipts_.get(), sync);
    ledger_writer_->OnGivenUp([this](const absl::Status& why) {
      if (IsReplaced(why))
        telemetry::LogError("gateway_replaced", {{"effect", "this gateway stops"}});
      options_.on_replaced();
    });
    return absl::OkStatus();
  }

  absl::Status MakeDriver(const std::string& path) {
    host_.SetEnd([this] { options_.on_replaced(); });
    driver_ = std::make_unique<CoreDriver>(options_.core, &host_, ledger_writer_.get(),
                                           blob_retention_.get(), door_.get());
    driver_->SetObserver(&driver_log_);
    driver_->SetHeads(heads_.get());
    if (options_.prices != nullptr) OB_RETURN_IF_ERROR(driver_->SetPrices(options_.prices));
    OB_ASSIGN_OR_RETURN(quarantine_, QuarantineRows::Open(path));
    OB_RETURN_IF_ERROR(driver_->SetQuarantine(quarantine_.get()));
    figures_ = std::make_unique<GatewayFigures>(driver_.get(), blobs_.get(), ledger_writer_.get());
    auto operators = OperatorSocket::Start(options_.data_folder, driver_.get(),
                                           options_.core.price_per_hour);
    if (operators.ok())
      operators_ = *std::move(operators);
    else
      telemetry::LogWarning("no_operator_socket", {{"message", operators.status().ToString()}});
    ticker_ = std::make_unique<Ticker>(driver_.get());
    return absl::OkStatus();
  }

  // A ledger that does not verify stays served: people see their usage, and sessions end in order;
  // but none is opened.
  void BeginAudits(const std::string& path) {
    auditor_ = std::make_unique<Auditor>(
        [folder = options_.data_folder, path] { return Audit(folder, path); },
        [this](const absl::StatusOr<AuditReport>& report) {
          telemetry::Count(telemetry::Metric::kLedgerAudits);
          // What cannot be read now says nothing of what it holds.
          if (report.ok() || absl::IsDataLoss(report.status()))
            ledger_writer_->SetAudit(report.status());
          if (!report.ok())
            telemetry::LogError("ledger_audit_failed",
                                {{"message", report.status().ToString()},
                                 {"effect", absl::IsDataLoss(report.status())
                                                ? "no session is opened"
                                                : "the next audit tries again"}});
          else
            TellAudited(*report);
        },
        kAuditEvery);
    auditor_->AwaitFirst(kFirstAuditWithin);
  }

  static void TellAudited(const AuditReport& report) {
    telemetry::LogInfo("ledger_audited", {{"entries", report.ledger.entries}});
    for (const WorkerShortfall& worker : ByWorker(report.shortfalls))
      telemetry::LogWarning("receipts_fall_short", {{"worker_key", worker.worker},
                                                    {"leased_devices", worker.devices},
                                                    {"charged_ms", worker.charged_ms},
                                                    {"signed_ms", worker.signed_ms}});
  }

  absl::Status TakeOver() {
    OB_ASSIGN_OR_RETURN(const auto used, ledger_->RecentUse(WallNow(), FairShares::kHalfLifeS));
    driver_->RememberUse(used);
    if (!options_.executors_outlive) {
      OB_ASSIGN_OR_RETURN(const auto lost, rows_->LoseAllLive(WallNow(), /*but_named=*/true));
      for (const SessionRow& row : lost) driver_->Remember(row);
      if (!lost.empty())
        telemetry::LogWarning("sessions_lost_at_start", {{"sessions", lost.size()}});
    }
    OB_RETURN_IF_ERROR(RestoreSessions());
    blob_retention_->RestoreDone();
    return absl::OkStatus();
  }

  absl::Status RestoreSessions() {
    OB_ASSIGN_OR_RETURN(auto taken, rows_->TakeOver(WallNow()));
    for (TakenOver& session : taken) {
      OB_ASSIGN_OR_RETURN(const auto past, ledger_->UsageOfSession(session.row.session));
      if (absl::Status status = RestoreSnapshot(session.row); !status.ok()) {
        telemetry::LogError("snapshot_damaged", {{"session", session.row.session.Hex()},
                                                 {"account", session.row.tenant.value},
                                                 {"message", status.ToString()}});
        session.row.recoverable = false;  // the client no longer has its first items
        session.row.snapshot_root.clear();
      }
      if (!options_.executors_outlive) session.row.worker.clear();
      driver_->Restore(session, past);
    }
    if (!taken.empty())
      telemetry::LogInfo("sessions_taken_over", {{"sessions", taken.size()}});
    return absl::OkStatus();
  }

  absl::Status RestoreSnapshot(const SessionRow& row) {
    if (row.snapshot_root.empty()) return absl::OkStatus();
    const std::optional<std::vector<wire::Hash>> parts =
        PartsOfRoot(row.snapshot_root, row.devices);
    if (!parts) return absl::DataLossError("its name is damaged");
    return blob_retention_->RestoreSnapshot(row.tenant, row.session, *parts);
  }

  absl::Status Serve() {
    // All threads that are started here pass steps on, or do next to nothing.
    const ScopedShortSlice short_slice;
    OB_RETURN_IF_ERROR(PrepareTls());
    OB_ASSIGN_OR_RETURN(local_, LocalAttach::Start(driver_.get(), authenticator_.get()));
    driver_->SetLocalSocket(local_->name());
    cloud_ = std::make_unique<CloudService>(driver_.get(), &host_, door_.get(),
                                            options_.reader_stalls_after);
    const Nodes nodes{node_enrolment_.get(), node_logs_.get(), node_keeper_.get(),
                      node_drivers_.get()};
    if (node_keeper_ != nullptr) node_keeper_->Start();
    fleet_ = std::make_unique<FleetService>(driver_.get(), blob_retention_.get(),
                                            fleet_door_.get(), admission_.get(), nodes, &queues_);
    if (!options_.no_auth)
      own_fleet_ = std::make_unique<FleetService>(driver_.get(), blob_retention_.get(),
                                                  door_.get(), &queues_);
    const auto blobs_for = [&](BlobCallers callers) {
      return std::make_unique<BlobService>(callers, blobs_.get(), blob_retention_.get(),
                                           door_.get(), driver_.get(), &queues_);
    };
    blob_service_ = blobs_for(BlobCallers::kClients);
    fleet_blobs_ = blobs_for(BlobCallers::kExecutors);
    store_service_ = std::make_unique<StoreService>(blob_retention_.get(), door_.get(), &queues_);
    OB_ASSIGN_OR_RETURN(auto usage, UsageReport::Open(AccountsPath(options_.data_folder)));
    account_ = std::make_unique<AccountService>(accounts_.get(), ledger_.get(), std::move(usage),
                                                heads_.get(), receipts_.get(), driver_.get(),
                                                options_.core.price_per_hour,
                                                door_.get(), &queues_);
    ConnectionLimits limits = DefaultConnectionLimits();
    limits.per_address = options_.connections_per_address;
    limits.proxies = options_.proxies;
    client_connections_ = std::make_unique<ConnectionTable>(limits, &refusals_);
    grpc::Service* const own_fleet =
        own_fleet_ != nullptr ? static_cast<grpc::Service*>(own_fleet_.get()) : &no_fleet_;
    OB_ASSIGN_OR_RETURN(
        clients_,
        GrpcListener::Start(
            options_.listen,
            {cloud_.get(), blob_service_.get(), store_service_.get(), account_.get(), own_fleet},
            client_connections_.get(),
            clients_have_tls_
                ? tls::ServerCredentials(certificates_->PathForClients(), /*asks_clients=*/false)
                : nullptr));
    door_->SetConnections(client_connections_.get());
    watches_.push_back(Watch(*clients_));
    // A machine with many devices has many executors, and none of them has a key.
    limits.per_address = kConnectionsPerWorkerAddressMax;
    limits.key_within = std::chrono::milliseconds(0);
    limits.bytes_before_key = 0;
    worker_connections_ = std::make_unique<ConnectionTable>(limits, &refusals_);
    OB_ASSIGN_OR_RETURN(
        workers_,
        GrpcListener::Start(options_.fleet_listen, {fleet_.get(), fleet_blobs_.get()},
                            worker_connections_.get(),
                            admission_ != nullptr
                                ? admission_->Credentials(certificates_->PathForWorkers())
                                : nullptr));
    watches_.push_back(Watch(*workers_));
    return absl::OkStatus();
  }

  // Decides which ports have TLS, and prepares what they present.
  absl::Status PrepareTls() {
    const TlsOptions& tls = options_.tls;
    OB_RETURN_IF_ERROR(CheckOptions(tls));
    const auto has_tls = [&tls](const std::string& address, bool here) {
      return HasTls(address, IsLocalAddress(address), here, tls);
    };
    // A certificate is given for a port that is to present it.
    clients_have_tls_ = has_tls(options_.listen, tls.clients_here || !tls.certificate_file.empty());
    const bool workers_have_tls = has_tls(options_.fleet_listen, tls.workers_here);
    if (clients_have_tls_ || workers_have_tls) {
      OB_ASSIGN_OR_RETURN(certificates_,
                          ServerCertificates::Start(options_.data_folder, options_.tls));
    }
    if (clients_have_tls_) fingerprint_ = certificates_->FingerprintForClients();
    if (!options_.tpm_roots_file.empty() && !workers_have_tls)
      return absl::InvalidArgumentError(
          "--tpm-roots needs TLS where nodes enrol: --tls, or a --fleet-listen that other "
          "machines reach");
    if (options_.worker_tokens && !workers_have_tls)
      return absl::InvalidArgumentError(
          "--worker-tokens needs TLS where workers join: --tls, or a --fleet-listen that other "
          "machines reach");
    if (workers_have_tls) {
      OB_ASSIGN_OR_RETURN(admission_,
                          WorkerAdmission::Start(options_.data_folder, certificates_->authority(),
                                                 options_.tls.worker_lifetime_s));
      if (options_.worker_tokens) {
        OB_ASSIGN_OR_RETURN(worker_tokens_, WorkerTokens::Open(AccountsPath(options_.data_folder)));
        const auto use = [this](absl::Status (WorkerTokens::*method)(std::string_view,
                                                                     std::string_view, WallTime)) {
          return [this, method](const std::string& token, const std::string& name) {
            return (worker_tokens_.get()->*method)(token, name, WallNow());
          };
        };
        admission_->ProveNames(
            {.check = use(&WorkerTokens::Check), .spend = use(&WorkerTokens::Spend)});
      }
      OB_ASSIGN_OR_RETURN(auto nodes, NodeRegistry::Open(AccountsPath(options_.data_folder)));
      OB_ASSIGN_OR_RETURN(auto tpms, NodeTpms::Open(AccountsPath(options_.data_folder)));
      OB_ASSIGN_OR_RETURN(auto makers, ReadTpmMakers(options_.tpm_roots_file));
      node_enrolment_ = std::make_unique<NodeEnrolment>(
          std::move(nodes), std::move(tpms), admission_.get(),
          options_.node_joins_within_s > 0 ? int64_t{1000} * options_.node_joins_within_s
                                           : NodeEnrolment::kJoinsWithinMs,
          std::move(makers));
      OB_ASSIGN_OR_RETURN(node_drivers_, DriverRows::Open(AccountsPath(options_.data_folder)));
      node_logs_ = std::make_unique<NodeLogs>(options_.data_folder);
      OB_ASSIGN_OR_RETURN(node_keeper_,
                          NodeKeeper::Open(AccountsPath(options_.data_folder), FleetOfNodes()));
      OB_RETURN_IF_ERROR(
          AddFleetFingerprint(options_.data_folder, options_.fleet_secret,
                              certificates_->authority().certificate().fingerprint().ToString()));
    }
    return WriteFingerprint(options_.data_folder, fingerprint_);
  }

  NodeFleet FleetOfNodes() {
    CoreDriver* const driver = driver_.get();
    return {
        .here = [driver] { return driver->NodesHere(); },
        .drain = [driver](const std::string& serial) { return driver->DrainNode(serial); },
        .restart = [driver](const std::string& serial,
                            const std::string& why) { return driver->RestartNode(serial, why); },
        .set_aside = [driver](const std::string& serial,
                              const std::string& why) { return driver->SetNodeAside(serial, why); },
        .power_cycle =
            [hook = options_.node_power_hook](const std::string& serial) {
              if (!hook.empty()) return PowerCycle(hook, serial);
              return absl::UnavailableError(
                  "the node is not here to be told, and there is no --node-power-hook");
            }};
  }

  std::unique_ptr<ListenerWatch> Watch(const GrpcListener& listener) {
    WatchOptions options;
    options.has_tls = listener.has_tls();
    return std::make_unique<ListenerWatch>(
        listener.address(),
        [this, address = listener.address()] {
          telemetry::LogError("listener_dead", {{"address", address}});
          options_.on_dead_listener();
        },
        options);
  }

  void Stop(std::chrono::milliseconds drain) {
    if (std::exchange(stopped_, true)) return;
    watches_.clear();
    auditor_.reset();
    operators_.reset();
    if (node_keeper_ != nullptr) node_keeper_->Stop();  // it asks the driver
    for (GrpcListener* listener : {clients_.get(), workers_.get()})
      if (listener != nullptr) listener->CloseLocalSocket();
    if (driver_ != nullptr && clients_ != nullptr) {
      driver_->Drain();
      driver_->AwaitEmpty(drain);
      driver_->StopAll();
      // Stopped queues run jobs on the thread that posts them, and a tick posts under the driver's
      // lock, which those jobs take.
      ticker_.reset();
      ledger_writer_->Stop();  // the last bills are written and told
      door_->Stop();           // answers to wrong keys and secrets wait no longer
      fleet_door_->Stop();
      for (GrpcListener* listener : {clients_.get(), workers_.get()})
        if (listener != nullptr) listener->Stop();
    }
    local_.reset();
    ticker_.reset();
    figures_.reset();
    queues_.Stop();
    if (door_ != nullptr) door_->Stop();
    if (fleet_door_ != nullptr) fleet_door_->Stop();
    clients_.reset();
    workers_.reset();
    driver_.reset();
    if (ledger_writer_ != nullptr) ledger_writer_->Stop();
  }

  GatewayOptions options_;
  FolderLock folder_lock_;
  Refusals refusals_;
  WorkQueues queues_;
  ProcessHost host_{&queues_};
  std::unique_ptr<Accounts> accounts_, keys_;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<SessionRows> rows_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<BlobRetention> blob_retention_;
  std::unique_ptr<KeyUses> key_uses_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<AccountLimits> account_limits_;
  std::unique_ptr<KeyDoor> door_;
  std::unique_ptr<FleetDoor> fleet_door_;
  std::unique_ptr<HeadSigner> heads_;
  std::unique_ptr<ReceiptRows> receipts_;
  std::unique_ptr<LedgerWriter> ledger_writer_;
  std::unique_ptr<Auditor> auditor_;
  DriverLog driver_log_;
  std::unique_ptr<QuarantineRows> quarantine_;
  std::unique_ptr<CoreDriver> driver_;
  std::unique_ptr<GatewayFigures> figures_;
  std::unique_ptr<OperatorSocket> operators_;
  std::unique_ptr<Ticker> ticker_;
  bool clients_have_tls_ = false;
  std::string fingerprint_;
  std::unique_ptr<ServerCertificates> certificates_;
  std::unique_ptr<WorkerTokens> worker_tokens_;
  std::unique_ptr<WorkerAdmission> admission_;
  std::unique_ptr<NodeEnrolment> node_enrolment_;
  std::unique_ptr<DriverRows> node_drivers_;
  std::unique_ptr<NodeLogs> node_logs_;
  std::unique_ptr<NodeKeeper> node_keeper_;
  std::unique_ptr<LocalAttach> local_;
  std::unique_ptr<CloudService> cloud_;
  std::unique_ptr<FleetService> fleet_, own_fleet_;
  std::unique_ptr<BlobService> blob_service_, fleet_blobs_;
  std::unique_ptr<StoreService> store_service_;
  std::unique_ptr<AccountService> account_;
  NoFleetService no_fleet_;
  std::unique_ptr<ConnectionTable> client_connections_, worker_connections_;
  std::unique_ptr<GrpcListener> clients_, workers_;
  std::vector<std::unique_ptr<ListenerWatch>> watches_;
  bool stopped_ = false;
};

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gateway::~Gateway() = default;

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(GatewayOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

const std::string& Gateway::address() const { return impl_->clients_->address(); }
const std::string& Gateway::fleet_address() const { return impl_->workers_->address(); }
const std::string& Gateway::fleet_secret() const { return impl_->options_.fleet_secret; }
const Refusals& Gateway::refusals() const { return impl_->refusals_; }
const std::string& Gateway::fingerprint() const { return impl_->fingerprint_; }
std::shared_ptr<grpc::Channel> Gateway::InProcessChannel() {
  return impl_->clients_->InProcessChannel();
}
std::shared_ptr<grpc::Channel> Gateway::InProcessFleetChannel() {
  return impl_->workers_->InProcessChannel();
}
uint32_t Gateway::devices_total() const { return impl_->driver_->devices_total(); }
size_t Gateway::session_count() const { return impl_->driver_->session_count(); }
bool Gateway::AwaitDevices(uint32_t count, std::chrono::milliseconds limit) {
  return impl_->driver_->AwaitDevices(count, limit);
}
absl::Status Gateway::SetPrices(std::shared_ptr<const PriceList> prices) {
  return impl_->driver_->SetPrices(std::move(prices));
}
void Gateway::Stop(std::chrono::milliseconds drain) { impl_->Stop(drain); }

}  // namespace outboard::gateway
