// The fixed word that a refusal of a node begins with, before a colon: for the node's console, the
// log and tests. docs/fleet.md has a row for each.
#pragma once

#include <string_view>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace outboard::gateway {

inline constexpr char kClaimUnknown[] = "claim_unknown";  // nobody made it, or it was replaced
inline constexpr char kClaimUsed[] = "claim_used";        // by another key
inline constexpr char kClaimExpired[] = "claim_expired";  // after 15 minutes
inline constexpr char kClaimOtherSerial[] = "claim_other_serial";  // it is for another node
inline constexpr char kSerialTaken[] = "serial_taken";  // the node of this serial is there
inline constexpr char kWaitingForApproval[] = "waiting_for_approval";
inline constexpr char kTooManyWait[] = "too_many_wait";
inline constexpr char kAsksTooOften[] = "asks_too_often";  // machines of its address
inline constexpr char kTpmRefused[] = "tpm_refused";  // its keys are of no kind that is known
inline constexpr char kTpmWrongAnswer[] = "tpm_wrong_answer";  // another TPM's, or altered
inline constexpr char kTpmChallengeUnknown[] = "tpm_challenge_unknown";  // used, or too old
inline constexpr char kTpmOther[] = "tpm_other";      // the node of this serial has another TPM
inline constexpr char kTpmMissing[] = "tpm_missing";  // it has one, and this machine shows none
inline constexpr char kTpmOtherSerial[] = "tpm_other_serial";  // this TPM is another node's
// No maker that the gateway trusts (--tpm-roots) vouches for this TPM.
inline constexpr char kTpmNotTrusted[] = "tpm_not_trusted";
inline constexpr char kCertificateRefused[] = "certificate_refused";  // expired, or revoked

// "claim_used" of "claim_used: the claim ..."; "" where there is none.
inline std::string_view NodeWord(std::string_view message) {
  const size_t colon = message.find(": ");
  if (colon == std::string_view::npos) return {};
  const std::string_view word = message.substr(0, colon);
  return word.find(' ') == std::string_view::npos ? word : std::string_view();
}

}  // namespace outboard::gateway
