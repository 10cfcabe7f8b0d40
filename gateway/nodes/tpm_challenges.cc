#include "gateway/nodes/tpm_challenges.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/random_bytes.h"
#include "base/sha256.h"
#include "gateway/nodes/node_words.h"
#include "wire/tls/limits.h"
#include "wire/tpm/credential.h"
#include "wire/tpm/tpm_keys.h"

namespace outboard::gateway {
namespace {

constexpr size_t kIdBytes = 16;

std::string Digest(std::string_view text) {
  const Sha256Digest digest = Sha256(text);
  return std::string(reinterpret_cast<const char*>(digest.data()), digest.size());
}

// A digest of what a challenge is made for: the request's key, the TPM's two keys and the serial
// number. Two requests with other parts never give the same text: all parts but the last have the
// length of a digest.
std::string Subject(const proto::EnrolNodeRequest& request) {
  return Digest(Digest(request.certificate_request()) + Digest(request.tpm().endorsement_key()) +
                Digest(request.tpm().attestation_key()) + request.facts().serial());
}

absl::Status Refused(const absl::Status& why) {
  return absl::InvalidArgumentError(absl::StrCat(kTpmRefused, ": ", why.message()));
}

}  // namespace

absl::StatusOr<TpmChallenges::Outcome> TpmChallenges::Check(const proto::EnrolNodeRequest& request,
                                                            const std::string& address,
                                                            MonoTime now) {
  const proto::NodeTpm& tpm = request.tpm();
  if (request.certificate_request().size() > tls::kRequestBytesMax ||
      tpm.challenge().size() > kIdBytes || tpm.answer().size() > tpm::kAnswerBytes)
    return Refused(absl::InvalidArgumentError("a request or an answer that is too long"));
  const auto key = tpm::EndorsementKey::Parse(tpm.endorsement_key());
  if (!key.ok()) return Refused(key.status());
  const auto name = tpm::AttestationKeyName(tpm.attestation_key());
  if (!name.ok()) return Refused(name.status());
  Outcome outcome;
  if (!tpm.endorsement_certificate().empty())
    outcome.issuer = key->IssuerOf(tpm.endorsement_certificate());
  std::erase_if(open_, [&](const Open& open) { return open.until.ns <= now.ns; });

  if (tpm.challenge().empty()) {
    const AddressKey from = AddressKeyOfPeer(address);
    MakeRoom(from);
    OB_ASSIGN_OR_RETURN(outcome.challenge,
                        Make({.id = {},
                              .endorsement_key = key->fingerprint().ToString(),
                              .secret = {},
                              .digest = Subject(request),
                              .address = from,
                              .until = {now.ns + kChallengeLifeNs}},
                             *key, *name));
    return outcome;
  }

  const auto at = std::find_if(open_.begin(), open_.end(),
                               [&](const Open& open) { return open.id == tpm.challenge(); });
  if (at == open_.end())
    return absl::UnavailableError(
        absl::StrCat(kTpmChallengeUnknown,
                     ": the challenge was answered before, is more than a minute old, or made room "
                     "for others; ask for another"));
  const Open open = std::move(*at);
  open_.erase(at);
  if (open.digest != Subject(request) ||
      !tpm::IsSame(tpm.answer(), tpm::AnswerOf(open.secret, request.certificate_request(),
                                               request.facts().serial())))
    return absl::PermissionDeniedError(
        absl::StrCat(kTpmWrongAnswer,
                     ": the answer is not that of the TPM whose endorsement key it shows"));
  outcome.proved = open.endorsement_key;
  return outcome;
}

void TpmChallenges::MakeRoom(const AddressKey& from) {
  std::map<AddressKey, size_t> counts;
  for (const Open& open : open_) ++counts[open.address];
  AddressKey fullest = from;
  if (counts[from] < kChallengesPerAddressMax) {
    if (open_.size() < kChallengesMax) return;
    for (const auto& [address, count] : counts)
      if (count > counts[fullest]) fullest = address;
  }
  const auto oldest = std::find_if(open_.begin(), open_.end(),
                                   [&](const Open& open) { return open.address == fullest; });
  open_.erase(oldest != open_.end() ? oldest : open_.begin());
}

absl::StatusOr<proto::NodeChallenge> TpmChallenges::Make(Open open, const tpm::EndorsementKey& key,
                                                         std::string_view name) {
  OB_ASSIGN_OR_RETURN(open.id, RandomBytes(kIdBytes));
  OB_ASSIGN_OR_RETURN(open.secret, RandomBytes(tpm::kSecretBytes));
  OB_ASSIGN_OR_RETURN(const auto credential, tpm::MakeCredential(key, name, open.secret));
  proto::NodeChallenge challenge;
  challenge.set_id(open.id);
  challenge.set_id_object(credential.id_object);
  challenge.set_seed(credential.seed);
  open_.push_back(std::move(open));
  return challenge;
}

}  // namespace outboard::gateway
