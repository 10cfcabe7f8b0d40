// A case of hostile input: what somebody tries, and what the gateway must answer. The table is
// AllHostileCases (cases.cc); the functions are grouped by what they attack.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tests/hostile/hostile_world.h"

namespace outboard::test {

struct HostileCase {
  int number = 0;  // and name: as in the list of hostile cases
  std::string name;
  std::string what;                     // somebody does
  std::vector<absl::StatusCode> codes;  // one of these is the answer
  std::string words;                    // a regular expression that its text matches
  // Tries it and returns the answer that counts; checks others itself. Null: there is nothing to
  // try it against, and `skipped` says why. With both, it fails today: OUTBOARD_HOSTILE_ALL=1
  // runs it.
  absl::Status (*run)(HostileWorld& world) = nullptr;
  std::string skipped = {};
  // Called before the first case, of one that takes long: it goes on beside the others.
  void (*begin)(HostileWorld& world) = nullptr;
};

const std::vector<HostileCase>& AllHostileCases();

// ---- blob_cases.cc
absl::Status BlobHashMismatch(HostileWorld& world);
absl::Status BlobShort(HostileWorld& world);
absl::Status BlobLong(HostileWorld& world);
absl::Status BlobRatioBomb(HostileWorld& world);
absl::Status BlobResumeWrongOffset(HostileWorld& world);
absl::Status BlobProbe(HostileWorld& world);
absl::Status BlobProbeTimes(HostileWorld& world);
absl::Status BlobNeverUploaded(HostileWorld& world);
absl::Status BlobNameIsNoPath(HostileWorld& world);
absl::Status BlobUploadRace(HostileWorld& world);

// ---- key_cases.cc
absl::Status KeyMissing(HostileWorld& world);
absl::Status KeyGarbled(HostileWorld& world);
absl::Status KeyRevoked(HostileWorld& world);
absl::Status KeyExpired(HostileWorld& world);
absl::Status KeyWrongScope(HostileWorld& world);
absl::Status KeyWrongAddress(HostileWorld& world);
absl::Status KeyBruteForce(HostileWorld& world);
absl::Status MetadataGarbage(HostileWorld& world);

// ---- session_cases.cc
absl::Status StepIdReused(HostileWorld& world);
absl::Status StepIdOfOther(HostileWorld& world);
absl::Status HoldOverflow(HostileWorld& world);
absl::Status NegativeBalanceRace(HostileWorld& world);
absl::Status CancelSpam(HostileWorld& world);
absl::Status LogInjection(HostileWorld& world);
absl::Status ErrorTextLeaks(HostileWorld& world);

// ---- http2_cases.cc
absl::Status DeadlineZero(HostileWorld& world);
absl::Status DeadlineNegative(HostileWorld& world);
absl::Status DeadlineHuge(HostileWorld& world);
absl::Status RapidReset(HostileWorld& world);
absl::Status Header64KiB(HostileWorld& world);
absl::Status ContinuationFlood(HostileWorld& world);
absl::Status ContinuationFloodWithKey(HostileWorld& world);
void WindowZeroBegins(HostileWorld& world);
absl::Status WindowZero(HostileWorld& world);
void SlowlorisBegins(HostileWorld& world);
absl::Status Slowloris(HostileWorld& world);
absl::Status StreamsOpenMany(HostileWorld& world);
absl::Status PingFlood(HostileWorld& world);

// ---- enrolment_cases.cc
absl::Status NodeTokenReplay(HostileWorld& world);
absl::Status NodeTwoClaimOneSerial(HostileWorld& world);
absl::Status NodeCertExpired(HostileWorld& world);

// ---- node_cases.cc
absl::Status NodeStaleEpoch(HostileWorld& world);
absl::Status NodeOfOtherAccount(HostileWorld& world);
absl::Status NodeUsageOverHold(HostileWorld& world);
absl::Status NodeUsageOverlap(HostileWorld& world);

}  // namespace outboard::test
