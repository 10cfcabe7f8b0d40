// A worker's supervisor: joins a gateway, starts an executor for each device of a session that is
// assigned to it, and connects the two.
//
//   gateway --Join------> commands  (assign, release)    one control stream, reconnected when it
//                                                        breaks; executors stay meanwhile
//           <--events---            (register, heartbeat, session ended)
//   gateway <--frames---> executor                     one for each device of a session
//
// One spare executor is running, unless all GPUs are taken: in its sandbox, with its compile
// process warm, so that a session opens at once.
// Executors end with this process, even if it crashes.
#pragma once

#include <grpcpp/channel.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "wire/proof/signing_key.h"
#include "worker/groups/group_links.h"
#include "worker/supervisor/join/enrolment.h"

namespace outboard::worker {

struct SupervisorOptions {
  std::shared_ptr<grpc::Channel> gateway;
  // More connections to the gateway, for blobs; empty: uses `gateway`.
  std::vector<std::shared_ptr<grpc::Channel>> bulk = {};
  // Where the gateway asks for a certificate: `gateway` and `bulk` then come from it. Else null.
  std::shared_ptr<Enrolment> enrolment = nullptr;
  std::string name;          // for people; empty: the host's name
  std::string fleet_secret;  // sent as "authorization: Bearer ..."
  // 32 random bytes that a worker which is started again shows again: its sessions that can go on
  // elsewhere then do so at once. Empty: this process is another worker than any before it.
  std::string identity = {};
  std::vector<std::string>
      executor;  // command line of an executor; empty: this program with "executor"
  // Signs what this worker counts of leases (worker/receipts/lease_counter.h); nothing: a new key.
  std::optional<signing::SigningKey> receipt_key = std::nullopt;
  // Command line of a search process (worker/tuning/search_main.h), for idle time; empty: no
  // search.
  std::vector<std::string> search;
  // Command line of a measuring process (worker/devices/measure_main.h).
  std::vector<std::string> measure = {"/proc/self/exe", "measure-device"};
  // Called on Run's thread, once, when a gateway has accepted this worker for the first time.
  std::function<void()> on_joined = [] {};
  // Called on Run's thread when the gateway asks that the machine starts again (Drain.restart).
  std::function<void()> on_restart = [] {};
  // Sessions at a time. Those of a CPU worker are disjoint sets of cores, except for `one_user`;
  // those of a GPU worker have a GPU each, so that there are no more than GPUs.
  int devices = 1;
  // Sessions of several accounts at a time even if the kernel does not grant all of the sandbox
  // (docs/sandbox.md).
  bool shared_anyway = false;
  bool is_single_account = false;  // there is only one, so that nothing follows from a missing part
  // Of one session; an Assign may lower it. 0: what its GPU has, else
  // runtime::DefaultMemoryBytesMax, divided by devices.
  int64_t memory_bytes_max = 0;
  // Of this machine's memory, before it is divided: files that are kept in memory, say.
  uint64_t memory_bytes_reserved = 0;
  // Where other workers connect for sessions that are on several; null: sessions have all of their
  // devices here.
  std::shared_ptr<GroupLinks> links = nullptr;
  // In which a gateway that takes the call to join answers it; it is called again after that.
  std::chrono::milliseconds welcome_within{30'000};
  // All accounts are one user's: what is compiled and measured is kept in common.
  bool one_user = false;
};

class Supervisor {
 public:
  explicit Supervisor(SupervisorOptions options);
  ~Supervisor();

  // Serves until Stop: joins, and rejoins with growing pauses when the gateway is unreachable. The
  // calling thread starts the executors and must stay alive: they end with it.
  // Errors: UNAUTHENTICATED, PERMISSION_DENIED, FAILED_PRECONDITION  the gateway refuses this
  //         worker permanently
  absl::Status Run();

  // Any thread but that of Run. Tells the gateway that this worker takes no new session and ends,
  // so that it moves those that can go on elsewhere from a snapshot; returns when none is left
  // here, or after `limit`, or at once where no gateway is joined.
  void Drain(std::chrono::milliseconds limit);

  // Any thread. Sessions may have the memory that was reserved (memory_bytes_reserved): joins anew,
  // so that the gateway hears of it; sessions that run here stay, as when a certificate is renewed.
  void ReleaseReserved();

  // Any thread, before a gateway in this process stops: does not join again once its connection has
  // ended. A call to a server of gRPC in this process crashes while that shuts down (1.51:
  // inproc_transport.cc calls the server's accept_stream_cb, which is null then).
  void StayAway();

  // Any thread. Takes no new session, ends the executors, and lets Run return.
  void Stop();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::worker
