// Which workers a fleet port with TLS lets in: those with a certificate of the gateway's CA that
// has neither expired nor been revoked. Without one only Enrol can be called, with the fleet
// secret.
//
// It stands before the services (gRPC's AuthMetadataProcessor), so no call can forget it.
// Threads: any; one of its own for calls that are open.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "wire/tls/authority.h"

namespace grpc {
class AuthContext;
class ServerCredentials;
}  // namespace grpc

namespace outboard::gateway {

class WorkerAdmission {
 public:
  // Errors: those of ReadRevoked: nobody is let in without that list
  static absl::StatusOr<std::unique_ptr<WorkerAdmission>> Start(const std::string& data_folder,
                                                                tls::Authority authority,
                                                                int64_t lifetime_s);
  ~WorkerAdmission();  // requires that all Watched are destroyed
  WorkerAdmission(const WorkerAdmission&) = delete;
  WorkerAdmission& operator=(const WorkerAdmission&) = delete;

  // Credentials of a fleet port that presents the file `pem_path`.
  std::shared_ptr<grpc::ServerCredentials> Credentials(const std::string& pem_path);

  // Issues a certificate to a worker that has shown the fleet secret. `name` is for people.
  // Errors: INVALID_ARGUMENT   no request (wire/tls/authority.h), a name that cannot be proved
  //         PERMISSION_DENIED  names are proved, and this one is not, or is another worker's
  //         UNAUTHENTICATED    it presents a certificate that was revoked, and no token
  //         UNAVAILABLE        it cannot be recorded
  absl::StatusOr<std::vector<tls::Certificate>> Enrol(const grpc::AuthContext& caller,
                                                      std::string_view request,
                                                      const std::string& name,
                                                      const std::string& token);

  // From now on a worker enrols for a name by a token, which is spent, and again by the certificate
  // that it has, or by the key of one that it was issued, whose answer may have been lost. One name
  // is one worker's at a time.
  struct Tokens {
    using Use = std::function<absl::Status(const std::string& token, const std::string& name)>;
    Use check, spend;  // PERMISSION_DENIED  it is not good
  };
  void ProveNames(Tokens tokens) { tokens_ = std::move(tokens); }
  // The name that the caller has proved, a node's serial number among them; "": names are not
  // proved.
  std::string ProvedName(const grpc::AuthContext& caller);

  // ---- nodes (gateway/nodes/node_enrolment.h), whose certificates name their serial numbers

  // The serial number of a node whose certificate Check lets in, which needs no fleet secret; "":
  // the caller is none.
  std::string NodeOf(const grpc::AuthContext& caller);
  // A certificate for a node, which nobody knows of before RecordNode.
  // Errors: INVALID_ARGUMENT  no request
  absl::StatusOr<std::vector<tls::Certificate>> IssueForNode(std::string_view request,
                                                             const std::string& serial);
  absl::Status RecordNode(const tls::Certificate& certificate);
  // Whether a certificate of this key is good, or was revoked.
  enum class KeyIs { kUnknown, kGood, kRevoked };
  absl::StatusOr<KeyIs> FindKey(const std::string& key_id);
  // Whether a call of this node's is open now.
  bool IsHere(const std::string& serial);
  // Revokes what other keys of this node were issued; returns how many that were.
  absl::StatusOr<int> RevokeOthers(const std::string& serial, const std::string& key_id);

  // OK for callers that did not come by TLS: they are on this machine, or the port is insecure.
  // Errors: UNAUTHENTICATED
  absl::Status Check(const grpc::AuthContext& caller);

  // Calls `cut` once when the caller's certificate expires or is revoked, within a second or two.
  class Watched {
   public:
    ~Watched();

   private:
    friend class WorkerAdmission;
    WorkerAdmission* admission_ = nullptr;
    std::string serial_, name_;
    absl::Time not_after_;
    std::function<void()> cut_;
  };
  // Null for callers that Check lets in without a certificate.
  std::unique_ptr<Watched> Watch(const grpc::AuthContext& caller, std::function<void()> cut);

 private:
  WorkerAdmission(const std::string& data_folder, tls::Authority authority, int64_t lifetime_s,
                  std::set<std::string> revoked);
  struct Known {
    std::string serial, name;
    absl::Time not_after;
  };
  absl::StatusOr<Known> Find(const std::string& pem);
  bool IsRevoked(const std::string& serial);
  bool proves_names() const { return tokens_.spend != nullptr; }
  // How the name is proved.
  enum class Proof { kCertificate, kKey, kToken };
  absl::StatusOr<Proof> ProveName(const grpc::AuthContext& caller, const std::string& name,
                                  const std::string& token, const std::string& key_id);
  void Work();

  const std::string data_folder_;
  const tls::Authority authority_;
  const int64_t lifetime_s_;
  Tokens tokens_;  // null: names are for people
  std::mutex mutex_;
  std::map<std::string, Known> known_;  // by PEM: good when they were checked
  std::set<std::string> revoked_;       // as it was last read; kept while it cannot be
  std::set<Watched*> watched_;
  bool stopping_ = false;
  std::condition_variable wake_;
  std::mutex record_mutex_;  // of the file of issued ones
  std::thread thread_;
};

}  // namespace outboard::gateway
