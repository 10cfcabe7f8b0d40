#include "gateway/tls/worker_admission.h"

#include <grpcpp/security/auth_context.h>
#include <grpcpp/security/auth_metadata_processor.h>
#include <grpcpp/security/server_credentials.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/check.h"
#include "gateway/base/node_serial.h"
#include "gateway/base/worker_name.h"
#include "gateway/tls/authority_files.h"
#include "telemetry/log.h"
#include "wire/status.h"
#include "wire/tls/credentials.h"
#include "wire/tls/limits.h"
#include "wire/tls/verify.h"

namespace outboard::gateway {
namespace {

constexpr std::chrono::seconds kLookEvery{1};
constexpr char kWorkerName[] = "outboard worker";  // in a certificate that names nobody
constexpr size_t kKnownMax = 4096;  // certificates whose signature was checked; 1 kB each

absl::Status Revoked() {
  return absl::UnauthenticatedError("the worker is refused: its certificate was revoked");
}

// Asked before each call of the port.
class Door final : public grpc::AuthMetadataProcessor {
 public:
  explicit Door(WorkerAdmission* admission) : admission_(admission) {}
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* caller, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    if (path != metadata.end() && (path->second == "/outboard.proto.Fleet/Enrol" ||
                                   path->second == "/outboard.proto.Fleet/EnrolNode"))
      return grpc::Status::OK;
    const absl::Status status = admission_->Check(*caller);
    if (status.ok()) return grpc::Status::OK;
    return {grpc::StatusCode::UNAUTHENTICATED, absl::StrCat(wire::kRefusalMark, status.message())};
  }

 private:
  WorkerAdmission* const admission_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<WorkerAdmission>> WorkerAdmission::Start(
    const std::string& data_folder, tls::Authority authority, int64_t lifetime_s) {
  OB_ASSIGN_OR_RETURN(const std::vector<std::string> revoked, ReadRevoked(data_folder));
  return std::unique_ptr<WorkerAdmission>(new WorkerAdmission(
      data_folder, std::move(authority), lifetime_s, {revoked.begin(), revoked.end()}));
}

WorkerAdmission::WorkerAdmission(const std::string& data_folder, tls::Authority authority,
                                 int64_t lifetime_s, std::set<std::string> revoked)
    : data_folder_(data_folder),
      authority_(std::move(authority)),
      lifetime_s_(lifetime_s),
      revoked_(std::move(revoked)) {
  thread_ = std::thread([this] { Work(); });
}

WorkerAdmission::~WorkerAdmission() {
  {
    std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

std::shared_ptr<grpc::ServerCredentials> WorkerAdmission::Credentials(const std::string& pem_path) {
  auto credentials = tls::ServerCredentials(pem_path, /*asks_clients=*/true);
  credentials->SetAuthMetadataProcessor(std::make_shared<Door>(this));
  return credentials;
}

absl::StatusOr<std::vector<tls::Certificate>> WorkerAdmission::Enrol(
    const grpc::AuthContext& caller, std::string_view request, const std::string& name,
    const std::string& token) {
  const bool proves = proves_names();
  if (proves) OB_RETURN_IF_ERROR(CheckWorkerName(name));
  if (!NodeOfSubject(name).empty())
    return absl::InvalidArgumentError("a worker's --name does not begin as a node's does");
  if (token.empty() && tls::CameByTls(caller))
    if (const auto known = Find(tls::PresentedCertificate(caller));
        known.ok() && IsRevoked(known->serial))
      return Revoked();
  OB_ASSIGN_OR_RETURN(std::vector<tls::Certificate> chain,
                      authority_.IssueFor(request, {.common_name = proves ? name : kWorkerName,
                                                    .purpose = tls::Purpose::kWorker,
                                                    .lifetime_s = lifetime_s_}));
  const std::string key_id = chain.front().key_id();
  std::lock_guard lock(record_mutex_);
  Proof proof = Proof::kCertificate;
  if (proves) {
    OB_ASSIGN_OR_RETURN(proof, ProveName(caller, name, token, key_id));
  }
  OB_RETURN_IF_ERROR(RecordIssued(
      data_folder_, {chain.front().serial(), chain.front().not_after(), name, key_id}));
  // Last: whoever hears nothing of what was recorded asks again, with the same key.
  if (proof == Proof::kToken) OB_RETURN_IF_ERROR(tokens_.spend(token, name));
  return chain;
}

// Under record_mutex_: of two that ask for one name the second finds the first.
absl::StatusOr<WorkerAdmission::Proof> WorkerAdmission::ProveName(const grpc::AuthContext& caller,
                                                                  const std::string& name,
                                                                  const std::string& token,
                                                                  const std::string& key_id) {
  if (tls::CameByTls(caller) && !tls::PresentedCertificate(caller).empty() && Check(caller).ok() &&
      ProvedName(caller) == name)
    return Proof::kCertificate;
  OB_ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> issued, ReadIssued(data_folder_));
  const absl::Time now = absl::Now();
  const IssuedCertificate* others = nullptr;
  for (const IssuedCertificate& one : issued) {
    if (one.name != name || one.not_after <= now || IsRevoked(one.serial)) continue;
    if (one.key_id == key_id) return Proof::kKey;
    others = &one;
  }
  if (token.empty())
    return absl::PermissionDeniedError(
        "this gateway lets a worker enrol with a token: give it --token-file with one of `outboard "
        "cert token NAME`, and --name NAME");
  if (others != nullptr)
    return absl::PermissionDeniedError(
        absl::StrCat("another worker has the name ", name, ", with a certificate until ",
                     absl::FormatTime(absl::RFC3339_sec, others->not_after, absl::UTCTimeZone()),
                     "; if it is this one, which has lost it: outboard cert revoke ", name));
  OB_RETURN_IF_ERROR(tokens_.check(token, name));
  return Proof::kToken;
}

absl::StatusOr<std::vector<tls::Certificate>> WorkerAdmission::IssueForNode(
    std::string_view request, const std::string& serial) {
  return authority_.IssueFor(request, {.common_name = NodeSubject(serial),
                                       .purpose = tls::Purpose::kWorker,
                                       .lifetime_s = lifetime_s_});
}

absl::Status WorkerAdmission::RecordNode(const tls::Certificate& certificate) {
  std::lock_guard lock(record_mutex_);
  return RecordIssued(data_folder_, {certificate.serial(), certificate.not_after(),
                                     certificate.common_name(), certificate.key_id()});
}

absl::StatusOr<WorkerAdmission::KeyIs> WorkerAdmission::FindKey(const std::string& key_id) {
  OB_ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> issued, ReadIssued(data_folder_));
  OB_ASSIGN_OR_RETURN(const std::vector<std::string> revoked, ReadRevoked(data_folder_));
  KeyIs found = KeyIs::kUnknown;
  for (const IssuedCertificate& one : issued) {
    if (one.key_id != key_id) continue;
    if (std::find(revoked.begin(), revoked.end(), one.serial) != revoked.end())
      return KeyIs::kRevoked;
    if (one.not_after > absl::Now()) found = KeyIs::kGood;
  }
  return found;
}

bool WorkerAdmission::IsHere(const std::string& serial) {
  const std::string name = NodeSubject(serial);
  std::lock_guard lock(mutex_);
  return std::any_of(watched_.begin(), watched_.end(), [&](const Watched* one) {
    return one->name_ == name && one->cut_ != nullptr;
  });
}

absl::StatusOr<int> WorkerAdmission::RevokeOthers(const std::string& serial,
                                                  const std::string& key_id) {
  OB_ASSIGN_OR_RETURN(const std::vector<IssuedCertificate> issued, ReadIssued(data_folder_));
  int count = 0;
  for (const IssuedCertificate& one : issued) {
    if (NodeOfSubject(one.name) != serial || one.key_id == key_id) continue;
    OB_RETURN_IF_ERROR(Revoke(data_folder_, one.serial));
    ++count;
  }
  return count;
}

std::string WorkerAdmission::NodeOf(const grpc::AuthContext& caller) {
  if (!tls::CameByTls(caller) || !Check(caller).ok()) return "";
  const auto known = Find(tls::PresentedCertificate(caller));
  return known.ok() ? NodeOfSubject(known->name) : "";
}

std::string WorkerAdmission::ProvedName(const grpc::AuthContext& caller) {
  if (std::string node = NodeOf(caller); !node.empty()) return node;
  if (!proves_names() || !tls::CameByTls(caller)) return "";
  const auto known = Find(tls::PresentedCertificate(caller));
  return known.ok() && known->name != kWorkerName ? known->name : "";
}

absl::StatusOr<WorkerAdmission::Known> WorkerAdmission::Find(const std::string& pem) {
  if (pem.empty())
    return absl::UnauthenticatedError(
        "this port asks workers for a certificate: enrol with the fleet secret (docs/tls.md)");
  {
    std::lock_guard lock(mutex_);
    if (const auto found = known_.find(pem); found != known_.end()) return found->second;
  }
  if (pem.size() > tls::kChainBytesMax)
    return absl::UnauthenticatedError("the worker's certificate is too long");
  const auto parsed = tls::Certificate::ParseAll("the worker's certificate", pem);
  if (!parsed.ok()) return absl::UnauthenticatedError(parsed.status().message());
  OB_RETURN_IF_ERROR(tls::CheckWorker(parsed->front(), authority_.certificate()));
  const Known known{parsed->front().serial(), parsed->front().common_name(),
                    parsed->front().not_after()};
  std::lock_guard lock(mutex_);
  if (known_.size() >= kKnownMax) known_.clear();
  known_[pem] = known;
  return known;
}

bool WorkerAdmission::IsRevoked(const std::string& serial) {
  std::lock_guard lock(mutex_);
  return revoked_.contains(serial);
}

absl::Status WorkerAdmission::Check(const grpc::AuthContext& caller) {
  if (!tls::CameByTls(caller)) return absl::OkStatus();
  OB_ASSIGN_OR_RETURN(const Known known, Find(tls::PresentedCertificate(caller)));
  if (known.not_after <= absl::Now())
    return absl::UnauthenticatedError("the worker is refused: its certificate has expired");
  if (IsRevoked(known.serial)) return Revoked();
  if (proves_names() && known.name == kWorkerName)
    return absl::UnauthenticatedError(
        "the worker is refused: its certificate names nobody, and this gateway's workers enrol "
        "with a token (outboard cert token NAME)");
  return absl::OkStatus();
}

std::unique_ptr<WorkerAdmission::Watched> WorkerAdmission::Watch(const grpc::AuthContext& caller,
                                                                 std::function<void()> cut) {
  if (!tls::CameByTls(caller)) return nullptr;
  const auto known = Find(tls::PresentedCertificate(caller));
  if (!known.ok()) return nullptr;  // Check has refused it
  auto watched = std::make_unique<Watched>();
  watched->admission_ = this;
  watched->serial_ = known->serial;
  watched->name_ = known->name;
  watched->not_after_ = known->not_after;
  watched->cut_ = std::move(cut);
  std::lock_guard lock(mutex_);
  watched_.insert(watched.get());
  return watched;
}

WorkerAdmission::Watched::~Watched() {
  if (admission_ == nullptr) return;
  std::lock_guard lock(admission_->mutex_);
  admission_->watched_.erase(this);
}

void WorkerAdmission::Work() {
  std::string told;
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, kLookEvery, [this] { return stopping_; })) {
    lock.unlock();
    const auto revoked = ReadRevoked(data_folder_);
    // Once per reason: it is read every second.
    if (const std::string why(revoked.status().message());
        std::exchange(told, why) != why && !why.empty())
      telemetry::LogWarning("revoked_not_read", {{"message", why}});
    lock.lock();
    if (revoked.ok()) revoked_ = {revoked->begin(), revoked->end()};
    const absl::Time now = absl::Now();
    for (Watched* watched : watched_) {
      if (watched->cut_ == nullptr ||
          (now < watched->not_after_ && !revoked_.contains(watched->serial_)))
        continue;
      // Under the lock, so that its call cannot end meanwhile; TryCancel calls nobody back.
      std::exchange(watched->cut_, nullptr)();
    }
  }
}

}  // namespace outboard::gateway
