#include "gateway/server/gateway.h"

#include <fcntl.h>
#include <grpcpp/security/server_credentials.h>
#include <grpcpp/server_builder.h>
#include <grpcpp/server_posix.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <filesystem>
#include <functional>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/work_queue.h"
#include "gateway/accounts/accounts.h"
#include "gateway/accounts/session_rows.h"
#include "gateway/base/clock.h"
#include "gateway/base/limits.h"
#include "gateway/blobs/blob_retention.h"
#include "gateway/blobs/blob_store.h"
#include "gateway/data_path/core_driver.h"
#include "gateway/data_path/host.h"
#include "gateway/ledger/ledger.h"
#include "gateway/server/authenticator.h"
#include "gateway/server/blob_service.h"
#include "gateway/server/key_uses.h"
#include "gateway/server/ledger_writer.h"
#include "gateway/server/services.h"
#include "gateway/streams/abstract_listener.h"
#include "gateway/streams/local_attach.h"
#include "wire/limits.h"

namespace outboard::gateway {

namespace {

// Why no server can listen at "HOST:PORT" or "unix:PATH", for people: gRPC does not say.
std::string WhyNotListening(const std::string& address) {
  if (address.starts_with("unix:")) return "is its folder there, and may this user write to it?";
  const size_t colon = address.rfind(':');
  std::string host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  if (colon == std::string::npos ||
      getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &hints, &found) != 0)
    return "there is no such host or port; write HOST:PORT with a name or address of this machine";
  int error = 0;
  for (const addrinfo* at = found; at != nullptr && error == 0; at = at->ai_next) {
    const int fd = socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol);
    if (fd < 0 || bind(fd, at->ai_addr, at->ai_addrlen) != 0) error = errno;
    if (fd >= 0) close(fd);
  }
  freeaddrinfo(found);
  switch (error) {
    case EADDRINUSE: return "the port is in use; is another gateway running there?";
    case EADDRNOTAVAIL: return "that is no address of this machine";
    case EACCES: return "only root may use that port";
    default: return error == 0 ? "try again" : std::string(strerror(error));
  }
}

// A CoreDriver's host in the gateway's process: the machine's clocks, the kernel's randomness, the
// pool; and the thread that tells it of time.
//
// Threads: any.
class ProcessHost final : public DriverHost {
 public:
  explicit ProcessHost(WorkQueue* pool) : pool_(pool) {}
  MonoTime Now() override { return MonoNow(); }
  WallTime WallNow() override { return gateway::WallNow(); }
  Token DrawToken() override { return Draw<Token>(); }
  void Post(std::function<void()> job) override { pool_->Post(std::move(job)); }

 private:
  WorkQueue* const pool_;
};

// Calls OnTick every kTickMs until its end.
class Ticker {
 public:
  explicit Ticker(CoreDriver* driver) : driver_(driver), thread_([this] { Work(); }) {}
  ~Ticker() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    wake_.notify_all();
    thread_.join();
  }

 private:
  void Work() {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto next = std::chrono::steady_clock::now() + std::chrono::milliseconds(kTickMs);
      if (wake_.wait_until(lock, next, [this] { return stopping_; })) return;
      lock.unlock();
      driver_->OnTick();
      lock.lock();
    }
  }

  CoreDriver* const driver_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

constexpr std::chrono::milliseconds kStreamsEndWithin{2000};

// The only place where the server gets its credentials; TLS would be added here.
std::shared_ptr<grpc::ServerCredentials> ServerCredentialsFor(const std::string& address) {
  return grpc::InsecureServerCredentials();
}

bool IsLocalAddress(const std::string& address) {
  for (const char* local : {"unix:", "localhost:", "127.", "[::1]:"}) {
    if (address.rfind(local, 0) == 0) return true;
  }
  return address.empty();
}

void SetLimits(grpc::ServerBuilder& builder) {
  builder.SetMaxReceiveMessageSize(static_cast<int>(wire::kMessageBytesMax));
  builder.SetMaxSendMessageSize(static_cast<int>(wire::kMessageBytesMax));
  // gRPC would inflate a compression bomb before it checks the size.
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_DEFLATE, false);
  builder.SetCompressionAlgorithmSupportStatus(GRPC_COMPRESS_GZIP, false);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, 20'000);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 10'000);
  builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, kStreamsPerConnectionMax);
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT,
                             0);  // a second gateway on the port must fail, not share it
}

}  // namespace

std::string AccountsPath(const std::string& data_folder) { return data_folder + "/outboard.db"; }

class Gateway::Impl {
 public:
  explicit Impl(GatewayOptions options) : options_(std::move(options)), pool_(kPoolThreads) {}
  ~Impl() { Stop(std::chrono::milliseconds(0)); }

  absl::Status Start() {
    if (options_.no_auth && !IsLocalAddress(options_.listen)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "without keys only a unix socket or a loopback address may be listened on, not ",
          options_.listen));
    }
    std::error_code error;
    std::filesystem::create_directories(options_.data_folder, error);
    if (error) {
      return absl::UnavailableError(absl::StrCat("cannot make the data folder ",
                                                 options_.data_folder, ": ", error.message()));
    }
    std::string path = AccountsPath(options_.data_folder);
    auto accounts = Accounts::Open(path);
    if (!accounts.ok()) return accounts.status();
    accounts_ = *std::move(accounts);
    auto ledger = Ledger::Open(path);
    if (!ledger.ok()) return ledger.status();
    ledger_ = *std::move(ledger);
    auto rows = SessionRows::Open(path);
    if (!rows.ok()) return rows.status();
    rows_ = *std::move(rows);
    auto blobs =
        BlobStore::Open(options_.data_folder + "/blobs", {.quota_bytes = options_.quota_bytes});
    if (!blobs.ok()) return blobs.status();
    blobs_ = *std::move(blobs);
    auto blob_retention = BlobRetention::Open(blobs_.get(), path, WallNow);
    if (!blob_retention.ok()) return blob_retention.status();
    blob_retention_ = *std::move(blob_retention);
    std::optional<TenantId> everybody;
    if (options_.no_auth) {
      auto tenant = accounts_->EnsureTenant("local", WallNow());
      if (!tenant.ok()) return tenant.status();
      everybody = tenant->id;
    }
    auto uses = Accounts::Open(path);
    if (!uses.ok()) return uses.status();
    key_uses_ = std::make_unique<KeyUses>(*std::move(uses));
    authenticator_ =
        std::make_unique<Authenticator>(accounts_.get(), key_uses_.get(), everybody,
                                        options_.fleet_token, IsLocalAddress(options_.listen));
    ledger_writer_ = std::make_unique<LedgerWriter>(ledger_.get(), rows_.get());
    driver_ = std::make_unique<CoreDriver>(options_.core, &host_, ledger_writer_.get(),
                                           blob_retention_.get(), authenticator_.get());
    ticker_ = std::make_unique<Ticker>(driver_.get());
    if (absl::Status status = TakeOver(); !status.ok()) return status;
    return Serve();
  }

  absl::Status TakeOver() {
    if (options_.executors_outlive) {
      if (absl::Status status = RestoreSessions(); !status.ok()) return status;
    } else {
      auto lost = rows_->LoseAllLive(WallNow());
      if (!lost.ok()) return lost.status();
      for (const SessionRow& row : *lost) driver_->Remember(row);
      if (!lost->empty())
        Log(absl::StrCat(lost->size(), " sessions were lost with the process before this one"));
    }
    blob_retention_->RestoreDone();
    return absl::OkStatus();
  }

  absl::Status RestoreSessions() {
    auto taken = rows_->TakeOver(WallNow());
    if (!taken.ok()) return taken.status();
    for (TakenOver& session : *taken) {
      auto past = ledger_->UsageOfSession(session.row.session);
      if (!past.ok()) return past.status();
      if (absl::Status status = RestoreSnapshot(session.row); !status.ok()) {
        Log(absl::StrCat("a snapshot is not whole any more: ", status.ToString()));
        session.row.recoverable = false;  // the client no longer has its first items
        session.row.snapshot_root.clear();
      }
      driver_->Restore(session, *past);
    }
    if (!taken->empty())
      Log(absl::StrCat(taken->size(),
                       " sessions of the gateway before this one wait for their workers"));
    return absl::OkStatus();
  }

  absl::Status RestoreSnapshot(const SessionRow& row) {
    if (row.snapshot_root.empty()) return absl::OkStatus();
    const std::optional<wire::Hash> root = wire::HashFromBytes(row.snapshot_root);
    if (!root) return absl::DataLossError("its name is damaged");
    return blob_retention_->RestoreSnapshot(row.tenant, row.session, *root);
  }

  absl::Status Serve() {
    auto local = LocalAttach::Start(driver_.get(), authenticator_.get());
    if (!local.ok()) return local.status();
    local_ = *std::move(local);
    driver_->SetLocalSocket(local_->name());
    cloud_ = std::make_unique<CloudService>(driver_.get(), &host_, authenticator_.get(), &pool_);
    fleet_ = std::make_unique<FleetService>(driver_.get(), blob_retention_.get(),
                                            authenticator_.get(), &pool_);
    blob_service_ = std::make_unique<BlobService>(blobs_.get(), blob_retention_.get(),
                                                  authenticator_.get(), driver_.get(), &pool_);
    store_service_ =
        std::make_unique<StoreService>(blob_retention_.get(), authenticator_.get(), &pool_);
    auto usage = UsageReport::Open(AccountsPath(options_.data_folder));
    if (!usage.ok()) return usage.status();
    account_ = std::make_unique<AccountService>(accounts_.get(), ledger_.get(), *std::move(usage),
                                                authenticator_.get(), &pool_);
    grpc::ServerBuilder builder;
    SetLimits(builder);
    int port = 0;
    bool has_port = !options_.listen.empty() && options_.listen.rfind("unix:", 0) != 0;
    if (!options_.listen.empty()) {
      builder.AddListeningPort(options_.listen, ServerCredentialsFor(options_.listen),
                               has_port ? &port : nullptr);
    }
    builder.RegisterService(cloud_.get());
    builder.RegisterService(fleet_.get());
    builder.RegisterService(blob_service_.get());
    builder.RegisterService(store_service_.get());
    builder.RegisterService(account_.get());
    server_ = builder.BuildAndStart();
    if (server_ == nullptr || (has_port && port == 0)) {
      return absl::UnavailableError(absl::StrCat("cannot listen at ", options_.listen, ": ",
                                                 WhyNotListening(options_.listen)));
    }
    if (!IsLocalAddress(options_.listen)) {
      Log("connections are not encrypted: let clients come through a tunnel or a TLS proxy");
    }
    address_ = options_.listen;
    if (has_port) address_ = absl::StrCat(address_.substr(0, address_.rfind(':')), ":", port);
    if (has_port) ListenLocally();
    if (!has_port && !address_.empty()) chmod(address_.substr(5).c_str(), 0600);
    return absl::OkStatus();
  }

  // Programs on this machine that connect to our port use a unix socket instead, which takes half
  // as long (client/session/link/local_socket.h).
  void ListenLocally() {
    auto listener = AbstractListener::Listen("outboard-" + address_, [this](int fd) {
      fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
      grpc::AddInsecureChannelFromFd(server_.get(), fd);
    });
    if (listener.ok()) {
      listener_ = *std::move(listener);
    } else {
      Log(absl::StrCat("programs on this machine come by TCP, which is slower: ",
                       listener.status().message()));
    }
  }

  void Stop(std::chrono::milliseconds drain) {
    if (std::exchange(stopped_, true)) return;
    listener_.reset();
    if (driver_ != nullptr && server_ != nullptr) {
      driver_->Drain();
      driver_->AwaitEmpty(drain);
      driver_->StopAll();
      ledger_writer_->Stop();  // the last bills are written and told
      server_->Shutdown(std::chrono::system_clock::now() + kStreamsEndWithin);
      server_->Wait();
    }
    local_.reset();
    ticker_.reset();
    pool_.Stop();
    server_.reset();
    driver_.reset();
    if (ledger_writer_ != nullptr) ledger_writer_->Stop();
  }

  GatewayOptions options_;
  std::string address_;
  WorkQueue pool_;
  ProcessHost host_{&pool_};
  std::unique_ptr<Accounts> accounts_;
  std::unique_ptr<Ledger> ledger_;
  std::unique_ptr<SessionRows> rows_;
  std::unique_ptr<BlobStore> blobs_;
  std::unique_ptr<BlobRetention> blob_retention_;
  std::unique_ptr<KeyUses> key_uses_;
  std::unique_ptr<Authenticator> authenticator_;
  std::unique_ptr<LedgerWriter> ledger_writer_;
  std::unique_ptr<CoreDriver> driver_;
  std::unique_ptr<Ticker> ticker_;
  std::unique_ptr<LocalAttach> local_;
  std::unique_ptr<CloudService> cloud_;
  std::unique_ptr<FleetService> fleet_;
  std::unique_ptr<BlobService> blob_service_;
  std::unique_ptr<StoreService> store_service_;
  std::unique_ptr<AccountService> account_;
  std::unique_ptr<grpc::Server> server_;
  std::unique_ptr<AbstractListener> listener_;
  bool stopped_ = false;
};

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Gateway::~Gateway() = default;

absl::StatusOr<std::unique_ptr<Gateway>> Gateway::Start(GatewayOptions options) {
  auto impl = std::make_unique<Impl>(std::move(options));
  if (absl::Status status = impl->Start(); !status.ok()) return status;
  return std::unique_ptr<Gateway>(new Gateway(std::move(impl)));
}

const std::string& Gateway::address() const { return impl_->address_; }
std::shared_ptr<grpc::Channel> Gateway::InProcessChannel() {
  return impl_->server_->InProcessChannel(grpc::ChannelArguments());
}
uint32_t Gateway::devices_total() const { return impl_->driver_->devices_total(); }
size_t Gateway::session_count() const { return impl_->driver_->session_count(); }
bool Gateway::AwaitDevices(uint32_t count, std::chrono::milliseconds limit) {
  return impl_->driver_->AwaitDevices(count, limit);
}
void Gateway::Stop(std::chrono::milliseconds drain) { impl_->Stop(drain); }

}  // namespace outboard::gateway
