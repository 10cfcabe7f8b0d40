// The files of a gateway's private CA, in the folder "tls" of its data folder:
//
//   ca-key.pem   the CA's key and certificate. Whoever reads it can be this gateway. Mode 0600
//   ca.pem       the CA's certificate, to be copied to clients (CLOUD_CA)
//   server.pem   key and chain that the gateway presents, unless it was given others. Mode 0600
//   given.pem    a copy of those others, whole
//   fingerprint  what clients may pin (CLOUD_FINGERPRINT), or "plain": without TLS
//   workers      the certificates that were issued to workers and are still valid, one a line
//   revoked      serial numbers of such that are refused, one a line
//   lock         held by whoever changes one of these two
//
// Threads: any; several processes may use one folder.
#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "wire/tls/authority.h"
#include "wire/tls/private_file.h"

namespace outboard::gateway {

std::string TlsFolder(const std::string& data_folder);

// Reads the CA of a data folder, which exists; makes one where there is none.
// Errors: those of tls::ReadFile and tls::WriteFile; INVALID_ARGUMENT  a damaged file
absl::StatusOr<tls::Authority> EnsureAuthority(const std::string& data_folder);
// NOT_FOUND where there is none.
absl::StatusOr<tls::Authority> ReadAuthority(const std::string& data_folder);
// Replaces it. Whatever the one before has issued is refused from then on.
absl::StatusOr<tls::Authority> ReplaceAuthority(const std::string& data_folder);

// "localhost" and the addresses of loopback.
std::vector<std::string> NamesOfEveryMachine();
// An address as certificates spell it ("::1" of "0:0:0:0:0:0:0:1"); other names as they are.
std::string CanonicalName(const std::string& name);
// This machine's names and addresses, "localhost" among them, and `more`; without duplicates.
std::vector<std::string> NamesOfThisMachine(const std::vector<std::string>& more);

// Issues a certificate for a server to `path`, key and chain in one file.
absl::Status IssueServerFile(const tls::Authority& authority, const std::string& path,
                             const std::vector<std::string>& names, int64_t lifetime_s,
                             tls::Replace replace);

// Of "workers" and of "revoked".
inline constexpr size_t kRecordLinesMax = 10'000;

// A line of "workers".
struct IssuedCertificate {
  std::string serial;
  absl::Time not_after;
  std::string name;         // of the worker, printable
  std::string key_id = {};  // tls::Certificate::key_id; "": of a line that an older version wrote
};
// Errors: those of tls::ReadFile, but for NOT_FOUND: then none was issued
absl::StatusOr<std::vector<IssuedCertificate>> ReadIssued(const std::string& data_folder);
// Adds a line, and drops those that have expired; keeps the newest kRecordLinesMax.
// Errors: those of ReadIssued, and the file stays as it was; UNAVAILABLE  it cannot be written
absl::Status RecordIssued(const std::string& data_folder, const IssuedCertificate& issued);

// The same errors. FAILED_PRECONDITION: there are kRecordLinesMax already. Revoke drops lines of
// certificates that have expired once there are half as many.
absl::StatusOr<std::vector<std::string>> ReadRevoked(const std::string& data_folder);
absl::Status Revoke(const std::string& data_folder, const std::string& serial);

// What `outboard key create` prints beside a key: the fingerprint that clients may pin; "" where
// the gateway's clients connect without TLS.
// Errors: those of EnsureAuthority, which it calls where no gateway has started yet
absl::StatusOr<std::string> FingerprintForClients(const std::string& data_folder);

// Called by a gateway when it starts; "": plain.
absl::Status WriteFingerprint(const std::string& data_folder, const std::string& fingerprint);

}  // namespace outboard::gateway
