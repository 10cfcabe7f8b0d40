#include "gateway/nodes/node_enrolment.h"

#include <grpcpp/security/auth_context.h>

#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "gateway/base/node_serial.h"
#include "gateway/nodes/node_words.h"
#include "gateway/tls/worker_admission.h"
#include "telemetry/log.h"
#include "wire/tls/authority.h"
#include "wire/tls/credentials.h"
#include "wire/tls/private_file.h"

namespace outboard::gateway {
namespace {

// Each question costs a look at files and, for who waits, a write. A shelf of machines behind one
// address asks once for each of them when it is switched on, and again with pauses that grow.
constexpr double kAsksPerAddress = 512, kAsksPerAddressPerS = 8;
constexpr size_t kAddressesMax = 4096;

// The TPM of the node of this serial number, and what this machine has proved.
absl::Status CheckTpm(const NodeTpmRow& own, const NodeRow& node) {
  const std::string& key = node.facts.endorsement_key();
  if (own.endorsement_key == key) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      key.empty() ? kTpmMissing : kTpmOther, ": node ", node.serial,
      " has a TPM, and this machine ", key.empty() ? "shows none" : "shows another",
      "; if that was replaced, `outboard node rm ", node.serial, "` on the gateway's"));
}

std::string WordsOf(const absl::StatusOr<std::string>& issuer) {
  return issuer.ok() ? *issuer : absl::StrCat("not known: ", issuer.status().message());
}

}  // namespace

absl::StatusOr<std::optional<tpm::MakerRoots>> ReadTpmMakers(const std::string& file) {
  if (file.empty()) {
    telemetry::LogInfo("tpm_makers_unchecked",
                       {{"message", "a node's TPM may be of any maker (--tpm-roots)"}});
    return std::nullopt;
  }
  OB_ASSIGN_OR_RETURN(const std::string pem, tls::ReadFile(file, /*is_secret=*/false));
  OB_ASSIGN_OR_RETURN(auto makers, tpm::MakerRoots::Parse(file, pem));
  telemetry::LogInfo("tpm_makers_read", {{"file", file}, {"certificates", makers.count()}});
  return makers;
}

// clang-format off
//                                                     word   this_node renews binds  spends
const NodeEnrolment::Proof NodeEnrolment::kCertificate{"certificate", true,  true,  false, false};
const NodeEnrolment::Proof NodeEnrolment::kKey        {"key",         true,  true,  false, false};
const NodeEnrolment::Proof NodeEnrolment::kTpm        {"tpm",         true,  false, false, false};
const NodeEnrolment::Proof NodeEnrolment::kExpectedTpm{"tpm",         false, false, true,  false};
const NodeEnrolment::Proof NodeEnrolment::kClaim      {"claim",       false, false, true,  true};
const NodeEnrolment::Proof NodeEnrolment::kExpected   {"expected",    false, false, true,  false};
const NodeEnrolment::Proof NodeEnrolment::kApproved   {"approved",    false, false, true,  false};
// clang-format on

absl::StatusOr<NodeEnrolment::Answer> NodeEnrolment::Enrol(const grpc::AuthContext& caller,
                                                           const proto::EnrolNodeRequest& request,
                                                           const std::string& address, Now now) {
  OB_RETURN_IF_ERROR(MayAsk(address, now.mono));
  OB_RETURN_IF_ERROR(CheckNodeFacts(request.facts()));
  NodeRow node{.serial = request.facts().serial(), .facts = request.facts(), .address = address};
  node.facts.clear_endorsement_key();  // until it is proved
  auto answer = TryEnrol(caller, request, node, now);
  if (!answer.ok()) {
    const std::string_view message(answer.status().message().data(),
                                   answer.status().message().size());
    const std::string macs = absl::StrJoin(node.facts.mac(), ",");
    // One that waits asks again and again, and `outboard node ls` shows it.
    const auto level = absl::IsUnavailable(answer.status()) ? telemetry::LogLevel::kInfo
                                                           : telemetry::LogLevel::kWarning;
    telemetry::LogAt(level, "node_refused",
                     {{"node", node.serial},
                      {"word", NodeWord(message)},
                      {"message", message},
                      {"address", address},
                      {"key", node.key_id},
                      {"uuid", node.facts.uuid()},
                      {"mac", macs},
                      {"image", node.facts.image()},
                      {"tpm", node.facts.endorsement_key()}});
  }
  return answer;
}

absl::Status NodeEnrolment::MayAsk(const std::string& address, MonoTime now) {
  std::lock_guard lock(asks_mutex_);
  if (asks_.size() >= kAddressesMax) {
    for (auto entry = asks_.begin(); entry != asks_.end();) {
      entry->second.Fill(kAsksPerAddressPerS, kAsksPerAddress, now);
      entry = entry->second.left() >= kAsksPerAddress ? asks_.erase(entry) : std::next(entry);
    }
    // Whoever has so many addresses is not held up by this.
    if (asks_.size() >= kAddressesMax) asks_.clear();
  }
  Allowance& asks =
      asks_.try_emplace(AddressKeyOfPeer(address), kAsksPerAddress, now).first->second;
  asks.Fill(kAsksPerAddressPerS, kAsksPerAddress, now);
  if (asks.Take(1)) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat(kAsksTooOften, ": machines of this address ask too often; try again later"));
}

absl::StatusOr<NodeEnrolment::Answer> NodeEnrolment::TryEnrol(
    const grpc::AuthContext& caller, const proto::EnrolNodeRequest& request, NodeRow& node,
    Now now) {
  OB_ASSIGN_OR_RETURN(node.key_id, tls::RequestKeyId(request.certificate_request()));
  std::lock_guard lock(mutex_);
  const auto found = registry_->Find(node.serial);
  if (!found.ok() && !absl::IsNotFound(found.status())) return found.status();
  const NodeRow* const before = found.ok() ? &*found : nullptr;
  OB_ASSIGN_OR_RETURN(const std::optional<NodeTpmRow> own_tpm, tpms_->OfSerial(node.serial));
  OB_ASSIGN_OR_RETURN(std::optional<Proof> proof, ProveAgain(caller, node, before));
  TpmChallenges::Outcome tpm;
  // Where no TPM is the node, a certificate says enough, and binds none.
  if (proof.has_value() && !own_tpm.has_value()) {
    node.facts.set_endorsement_key(before->facts.endorsement_key());
  } else if (request.has_tpm()) {
    OB_ASSIGN_OR_RETURN(tpm, challenges_.Check(request, node.address, now.mono));
    if (tpm.challenge.has_value())
      return Answer{.chain = {}, .challenge = std::move(tpm.challenge)};
    node.facts.set_endorsement_key(tpm.proved);
  }
  if (own_tpm.has_value()) OB_RETURN_IF_ERROR(CheckTpm(*own_tpm, node));
  if (!proof.has_value() && own_tpm.has_value()) proof = kTpm;
  if (!proof.has_value()) {
    OB_ASSIGN_OR_RETURN(proof, ProveByTpm(node, before));
  }
  if (!proof.has_value()) {
    if (!tpm.proved.empty()) OB_RETURN_IF_ERROR(CheckMaker(request, tpm));
    OB_ASSIGN_OR_RETURN(proof, Prove(request, node, before, now.wall));
  }
  if (!proof->is_this_node) {
    const bool was_just_let_in = before != nullptr && !before->key_id.empty() &&
                                 before->key_id != node.key_id &&
                                 now.wall.unix_ms - before->since.unix_ms < joins_within_ms_;
    if (was_just_let_in || admission_->IsHere(node.serial))
      return absl::PermissionDeniedError(
          absl::StrCat(kSerialTaken,
                       ": a node of this serial number is here; if that is another machine, "
                       "`outboard node rm ",
                       node.serial, "` on the gateway's"));
  }
  OB_ASSIGN_OR_RETURN(std::vector<tls::Certificate> chain,
                      admission_->IssueForNode(request.certificate_request(), node.serial));
  if (chain.front().key_id() != node.key_id)  // another spelling of the key
    return absl::InvalidArgumentError("the request's key is not written as a certificate has it");
  // Before the claim is spent, which is good once: there may be no room for another TPM.
  if (proof->binds_tpm && !tpm.proved.empty())
    OB_RETURN_IF_ERROR(tpms_->Bind(tpm.proved, node.serial, now.wall));
  if (proof->spends_claim)
    OB_RETURN_IF_ERROR(
        registry_->SpendClaim(request.claim(), node.serial, node.key_id, now.wall));
  OB_RETURN_IF_ERROR(admission_->RecordNode(chain.front()));
  OB_RETURN_IF_ERROR(registry_->Enrolled(node, now.wall));
  int replaced = 0;
  if (!proof->renews) {
    OB_ASSIGN_OR_RETURN(replaced, admission_->RevokeOthers(node.serial, node.key_id));
  }
  const std::string macs = absl::StrJoin(node.facts.mac(), ",");
  telemetry::LogInfo("node_enrolled", {{"node", node.serial},
                                       {"proof", proof->word},
                                       {"address", node.address},
                                       {"key", node.key_id},
                                       {"uuid", node.facts.uuid()},
                                       {"mac", macs},
                                       {"image", node.facts.image()},
                                       {"kernel", node.facts.kernel()},
                                       {"cores", node.facts.cores()},
                                       {"tpm", node.facts.endorsement_key()},
                                       {"tpm_issuer", WordsOf(tpm.issuer)},
                                       {"revoked", replaced}});
  return Answer{.chain = std::move(chain), .challenge = std::nullopt};
}

absl::StatusOr<std::optional<NodeEnrolment::Proof>> NodeEnrolment::ProveAgain(
    const grpc::AuthContext& caller, const NodeRow& node, const NodeRow* before) {
  const bool has_certificate = tls::CameByTls(caller) && !tls::PresentedCertificate(caller).empty();
  if (has_certificate) {
    if (const absl::Status status = admission_->Check(caller); !status.ok())
      return absl::UnauthenticatedError(absl::StrCat(kCertificateRefused, ": ", status.message()));
    if (admission_->NodeOf(caller) == node.serial && before != nullptr &&
        before->state == NodeState::kEnrolled)
      return kCertificate;
  }
  OB_ASSIGN_OR_RETURN(const WorkerAdmission::KeyIs key, admission_->FindKey(node.key_id));
  // A machine that was replaced or removed does not come back by the key that it had.
  if (key == WorkerAdmission::KeyIs::kRevoked)
    return absl::UnauthenticatedError(absl::StrCat(
        kCertificateRefused, ": a certificate of this key was revoked; start the machine again"));
  if (key == WorkerAdmission::KeyIs::kGood && before != nullptr && before->key_id == node.key_id)
    return kKey;
  return std::nullopt;
}

absl::StatusOr<std::optional<NodeEnrolment::Proof>> NodeEnrolment::ProveByTpm(
    const NodeRow& node, const NodeRow* before) {
  const std::string& key = node.facts.endorsement_key();
  if (key.empty()) return std::nullopt;
  OB_ASSIGN_OR_RETURN(const auto of_key, tpms_->Find(key));
  if (!of_key.has_value()) return std::nullopt;
  // Expected without a serial number, it may have one that nobody has, and takes no other node's.
  if (of_key->serial.empty() && before != nullptr && before->state == NodeState::kEnrolled)
    return absl::PermissionDeniedError(absl::StrCat(
        kSerialTaken, ": there is a node ", node.serial,
        ", which has shown no TPM; if this machine is that, `outboard node expect --serial ",
        node.serial, " --ek ", key, "` on the gateway's"));
  if (of_key->serial.empty()) return kExpectedTpm;
  return absl::PermissionDeniedError(absl::StrCat(
      kTpmOtherSerial, ": this TPM is node ", of_key->serial,
      "'s, and the machine says that it is ",
      node.serial, "; if that is so, `outboard node rm ", of_key->serial, "` on the gateway's"));
}

absl::Status NodeEnrolment::CheckMaker(const proto::EnrolNodeRequest& request,
                                       const TpmChallenges::Outcome& tpm) {
  if (!makers_.has_value()) return absl::OkStatus();
  const absl::Status status =
      tpm.issuer.ok() ? makers_->Check(request.tpm().endorsement_certificate())
                      : tpm.issuer.status();
  if (status.ok()) return status;
  return absl::PermissionDeniedError(
      absl::StrCat(kTpmNotTrusted, ": ", status.message(),
                   "; if it is yours all the same, `outboard node expect --ek ",
                   tpm.proved, "` on the gateway's"));
}

absl::StatusOr<NodeEnrolment::Proof> NodeEnrolment::Prove(const proto::EnrolNodeRequest& request,
                                                          const NodeRow& node,
                                                          const NodeRow* before, WallTime now) {
  if (!request.claim().empty()) {
    OB_RETURN_IF_ERROR(registry_->CheckClaim(request.claim(), node.serial, node.key_id, now));
    return kClaim;
  }
  if (before != nullptr && before->is_expected) return kExpected;
  OB_ASSIGN_OR_RETURN(const bool is_approved, registry_->IsApproved(node.serial, node.key_id));
  if (is_approved) return kApproved;
  OB_RETURN_IF_ERROR(registry_->NoteWaiting(node, now));
  return absl::UnavailableError(
      absl::StrCat(kWaitingForApproval, ": waiting for approval: `outboard node approve ",
                   node.serial, " --key ", node.key_id.substr(0, 8), "` on the gateway's machine"));
}

}  // namespace outboard::gateway
