// The gateway as a server: GatewayCore with gRPC, the accounts file and the blob store.
//
// Stops in three steps: opens no new sessions; lets running ones end until the drain time is over;
// ends, bills and records the rest. Threads: any; Stop once.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "gateway/accounts/address_range.h"
#include "gateway/base/limits.h"
#include "gateway/blobs/limits.h"
#include "gateway/core/events.h"
#include "gateway/doors/account_limits.h"
#include "gateway/doors/refusals.h"
#include "gateway/prices/price_list.h"
#include "gateway/tls/server_certificates.h"

namespace outboard::gateway {

struct GatewayOptions {
  // For clients, and for workers: "host:port" (port 0: any) or "unix:/path". Empty: no socket,
  // InProcessChannel or InProcessFleetChannel only.
  std::string listen, fleet_listen;
  std::string data_folder;  // created if missing
  // Serves every client as the tenant "local". Only for addresses that other machines cannot reach:
  // a unix socket, loopback or in process; INVALID_ARGUMENT with another address.
  bool no_auth = false;
  // Bytes that each tenant may store; 0: as many as the disk holds.
  uint64_t quota_bytes = 0;
  uint64_t quota_objects = kStoreObjectsMax;  // chunks and blobs
  // What workers must present. Empty: the one in the data folder, which is made if it is not there
  // (gateway/server/fleet_secret.h).
  std::string fleet_secret;
  // True: sessions of a previous gateway process continue when their workers join. False where
  // executors end with this process: those sessions have then ended.
  bool executors_outlive = true;
  // Called once, by a thread of the gateway's, when one of its ports is not served any more: the
  // process should then end (gateway/server/listener_watch.h).
  std::function<void()> on_dead_listener = [] {};
  // Likewise, when another gateway has taken the data folder (gateway/accounts/folder_turn.h), or
  // the disk of its books fails (LedgerWriter::OnGivenUp), or an exception leaves its core halfway
  // through an event (DriverHost::GiveUp).
  std::function<void()> on_replaced = [] {};
  // Connections that one address may have, and proxies that may have more, since others are behind
  // them.
  size_t connections_per_address = kConnectionsPerAddressMax;
  std::vector<AddressRange> proxies;
  // What one account may have at a time.
  AccountLimitsOptions account;
  // A client that takes nothing of what is sent to it for so long is cut off; it may come back.
  std::chrono::milliseconds reader_stalls_after{kReaderStalledMs};
  // TLS of both ports, and what they present.
  TlsOptions tls = {};
  // Workers enrol by tokens (gateway/accounts/worker_tokens.h), and their names are proved. Needs
  // TLS where they join: INVALID_ARGUMENT without.
  bool worker_tokens = false;
  // What a proxy before the gateway shows when it names a caller's address; empty: no proxy's word
  // counts (gateway/tls/trusted_proxy.h).
  std::string proxy_secret = {};
  // How far below zero the balance of an account without a limit of its own may go.
  MicroUsd credit_limit = kNoCreditLimit;
  // Classes of devices and their prices; null: all devices cost core.price_per_hour.
  std::shared_ptr<const PriceList> prices = nullptr;
  // Switches machines of nodes off and on (gateway/nodes/power_hook.h); empty: nothing does.
  std::string node_power_hook = {};
  // PEM: makers of TPMs, of which a node's must be (wire/tpm/maker_roots.h); empty: of any.
  std::string tpm_roots_file = {};
  int node_joins_within_s = 0;  // 0: NodeEnrolment::kJoinsWithinMs
  CoreOptions core;
};

// Returns the path of the accounts file within a data folder; the CLI opens it too.
std::string AccountsPath(const std::string& data_folder);

class Gateway {
 public:
  // Errors: INVALID_ARGUMENT     options, a certificate that was given
  //         FAILED_PRECONDITION  another gateway serves the data folder
  //         UNAVAILABLE          an address is taken, the data folder cannot be written
  //         those of the accounts file and of EnsureFleetSecret
  static absl::StatusOr<std::unique_ptr<Gateway>> Start(GatewayOptions options);
  ~Gateway();  // as Stop(0)

  // "host:port" with the port that was chosen, or the unix address.
  const std::string& address() const;
  const std::string& fleet_address() const;
  const std::string& fleet_secret() const;
  const Refusals& refusals() const;  // what its doors refused since the start
  // What clients may pin; "" where they connect without TLS.
  const std::string& fingerprint() const;
  // Channels within this process: for clients, and for the workers of `serve`.
  std::shared_ptr<grpc::Channel> InProcessChannel();
  std::shared_ptr<grpc::Channel> InProcessFleetChannel();

  uint32_t devices_total() const;
  size_t session_count() const;
  // Waits until workers with `count` devices in total have joined; false after `limit`.
  bool AwaitDevices(uint32_t count, std::chrono::milliseconds limit);

  // Of sessions that begin from now on. Errors: as CoreDriver::SetPrices; the old ones stay.
  absl::Status SetPrices(std::shared_ptr<const PriceList> prices);

  void Stop(std::chrono::milliseconds drain);

 private:
  class Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::gateway
