// The connections of this worker's executors with those of other workers: a link for each pair of
// ranks of a session of which one is here and one is not. An executor has a socket pair for each
// rank, whoever is at the other end (runtime/collective/sockets.h); this passes bytes between such
// a socket and a TCP connection, so that a tenant's process has no network.
//
// One address is listened at, for all sessions. Of those who connect, only workers that have the
// session's attach token come further (link_greeting.h); others are refused, whoever they say they
// are, and they can neither delay nor crowd out the rest.
//
// Threads: any; one of its own moves the bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "worker/groups/group_link.h"

namespace outboard::worker {

class GroupLinks {
 public:
  // `address`: of this host, as in wire/data_address.h; port 0: the system chooses. `advertised`,
  // of the same form with a port: where other workers reach it, if that differs (a container's
  // mapped port). Errors name the worker's option that is to be changed:
  //         INVALID_ARGUMENT  no such address; `advertised` is none
  //         UNAVAILABLE       it is in use; no thread or descriptor
  static absl::StatusOr<std::unique_ptr<GroupLinks>> Listen(const std::string& address,
                                                            const std::string& advertised = "");
  ~GroupLinks();
  GroupLinks(const GroupLinks&) = delete;
  GroupLinks& operator=(const GroupLinks&) = delete;

  const std::string& address() const;     // where it listens, with its port
  const std::string& advertised() const;  // where others connect: as given, or address()

  // Names the links that are added together, until Remove.
  enum class Group : uint64_t {};
  // `on_lost`: called at most once, from the thread of this, when a partner is lost and nobody has
  // removed the links meanwhile: with the rank here, and UNAVAILABLE with the rank there and why.
  Group Add(std::vector<GroupLinkOptions> links,
            std::function<void(uint32_t rank, const absl::Status&)> on_lost);
  // Closes them. When it returns, on_lost is not called any more.
  void Remove(Group group);

  // For tests and metrics.
  struct Counts {
    size_t links = 0, open = 0;       // that there are now
    size_t callers = 0;               // who connected and have shown nothing yet
    uint64_t refused = 0;             // connections, since the start
    uint64_t accepts_failed = 0;      // for want of a descriptor; tried again after a pause
  };
  Counts counts() const;

 private:
  GroupLinks();
  class Impl;
  std::unique_ptr<Impl> impl_;
  std::string advertised_;
};

}  // namespace outboard::worker
