// What a gateway's ports present: a certificate of its private CA, or one that it was given. Both
// are followed while it runs: the first is renewed, the second is read again when its files change.
//
// gRPC reads the files that PathForClients and PathForWorkers name (wire/tls/credentials.h). Each
// holds key and chain together, and is only replaced by a pair that fits: a port never presents
// half of a renewal.
//
// Threads: one of its own; calls from any.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "gateway/tls/authority_files.h"
#include "wire/tls/authority.h"

namespace outboard::gateway {

// How a gateway's ports are protected (docs/tls.md).
struct TlsOptions {
  // No port has TLS, wherever it listens.
  bool insecure = false;
  // Ports of loopback have it too: that of the clients, and that of the workers.
  bool clients_here = false, workers_here = false;
  // PEM files, both or neither, for the clients' port: the chain and its key. Workers are always
  // shown a certificate of the gateway's own CA, which they know by the file of the fleet secret.
  std::string certificate_file = {}, key_file = {};
  // Names and addresses of the own certificate, beside those of this machine.
  std::vector<std::string> names = {};
  int64_t server_lifetime_s = tls::kServerLifetimeS;
  int64_t worker_lifetime_s = tls::kWorkerLifetimeS;
};

// Errors: INVALID_ARGUMENT  options that contradict each other
absl::Status CheckOptions(const TlsOptions& options);
// True if a port at `address` has TLS. `here`: also if it is on this machine.
bool HasTls(const std::string& address, bool is_local, bool here, const TlsOptions& options);

class ServerCertificates {
 public:
  // Makes or reads the CA of the data folder and a server's certificate; renews that where it is
  // due or lacks a name. Then follows the files.
  // Errors: INVALID_ARGUMENT, PERMISSION_DENIED, FAILED_PRECONDITION  of a file; UNAVAILABLE
  static absl::StatusOr<std::unique_ptr<ServerCertificates>> Start(const std::string& data_folder,
                                                                   const TlsOptions& options);
  ~ServerCertificates();
  ServerCertificates(const ServerCertificates&) = delete;
  ServerCertificates& operator=(const ServerCertificates&) = delete;

  std::string PathForClients() const { return has_given() ? given_path_ : own_path_; }
  std::string PathForWorkers() const { return own_path_; }
  const tls::Authority& authority() const { return authority_; }
  // What clients may pin: the CA's, or, of a given certificate, that of its own key.
  std::string FingerprintForClients() const;

 private:
  ServerCertificates(const std::string& data_folder, const TlsOptions& options,
                     tls::Authority authority);
  bool has_given() const { return !options_.certificate_file.empty(); }
  absl::Status RenewOwn();
  absl::Status CopyGiven();
  void Follow();

  const std::string data_folder_;
  TlsOptions options_;  // as given, but for the spelling of its names
  const tls::Authority authority_;
  const std::string own_path_, given_path_;
  std::string given_stamp_;  // of the files, as they were read; of Start, then of the thread
  std::string given_fingerprint_;
  mutable std::mutex mutex_;  // of given_fingerprint_ and stopping_
  std::condition_variable wake_;
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace outboard::gateway
