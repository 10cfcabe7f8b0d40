#include "tests/runtime/fake_nccl.h"

#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/collective/nccl_api.h"

namespace {

using outboard::collective::ncclConfig_t;
using outboard::collective::ncclDataType_t;
using outboard::collective::ncclInProgress;
using outboard::collective::ncclResult_t;
using outboard::collective::ncclSuccess;
using outboard::collective::ncclUniqueId;
using outboard::test::FakeStream;

constexpr auto kInvalidArgument = static_cast<ncclResult_t>(4);

// A send or a receive that has no partner yet.
struct Half {
  void* memory;
  size_t bytes;
  FakeStream* stream;
  uint64_t number;
  const void* comm;
};

struct Clique {
  int ranks = 0, came = 0;
  std::map<std::pair<int, int>, std::deque<Half>> sends, receives;  // by from, to
};

std::mutex lock;
std::map<std::string, std::shared_ptr<Clique>> cliques;
std::map<int, int> failing;
bool hangs = false;
int library_version = 22003, ids = 0, alive = 0;

void Done(const Half& half) { half.stream->open.erase(half.number); }

void Match(Clique& clique, std::pair<int, int> way) {
  auto &sends = clique.sends[way], &receives = clique.receives[way];
  while (!hangs && !sends.empty() && !receives.empty() &&
         sends.front().bytes == receives.front().bytes) {
    std::memcpy(receives.front().memory, sends.front().memory, sends.front().bytes);
    Done(sends.front()), Done(receives.front());
    sends.pop_front(), receives.pop_front();
  }
}

}  // namespace

namespace outboard::collective {
struct ncclComm {
  std::shared_ptr<Clique> clique;
  int rank = 0;
};
}  // namespace outboard::collective
using outboard::collective::ncclComm_t;

namespace {
struct Queued {
  ncclComm_t comm;
  std::pair<int, int> way;
  bool is_send;
  Half half;
};
thread_local int depth = 0;
thread_local std::vector<Queued> group;

ncclResult_t Queue(ncclComm_t comm, std::pair<int, int> way, bool is_send, void* memory,
                   size_t bytes, void* stream) {
  if (depth == 0 || way.first < 0 || way.second < 0 || way.first >= comm->clique->ranks ||
      way.second >= comm->clique->ranks)
    return kInvalidArgument;
  group.push_back({comm, way, is_send, {memory, bytes, static_cast<FakeStream*>(stream), 0, comm}});
  return ncclSuccess;
}
}  // namespace

extern "C" {

ncclResult_t ncclGetVersion(int* version) {
  std::lock_guard guard(lock);
  *version = library_version;
  return ncclSuccess;
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
  std::lock_guard guard(lock);
  std::memset(id, 0, sizeof *id);
  std::memcpy(id->internal, &++ids, sizeof ids);
  return ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int ranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
  if (config->magic != 0xcafebeef || config->size < sizeof(ncclConfig_t) || config->blocking != 0)
    return kInvalidArgument;
  std::lock_guard guard(lock);
  auto& clique = cliques[std::string(id.internal, sizeof id.internal)];
  if (clique == nullptr) clique = std::make_shared<Clique>();
  clique->ranks = ranks;
  ++clique->came;
  ++alive;
  *comm = new outboard::collective::ncclComm{clique, rank};
  return ncclInProgress;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
  std::lock_guard guard(lock);
  const auto fails = failing.find(comm->rank);
  *error = fails != failing.end()                       ? static_cast<ncclResult_t>(fails->second)
           : comm->clique->came < comm->clique->ranks ? ncclInProgress
                                                        : ncclSuccess;
  return ncclSuccess;
}

// What this rank has queued is over, and its memory is its own again.
ncclResult_t ncclCommAbort(ncclComm_t comm) {
  std::lock_guard guard(lock);
  for (auto* const halves : {&comm->clique->sends, &comm->clique->receives})
    for (auto& [way, queue] : *halves)
      std::erase_if(queue, [&](const Half& half) {
        if (half.comm == comm) Done(half);
        return half.comm == comm;
      });
  --alive;
  delete comm;
  return ncclSuccess;
}

ncclResult_t ncclGroupStart() {
  ++depth;
  return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
  if (--depth > 0) return ncclSuccess;
  std::lock_guard guard(lock);
  for (Queued& one : group) {
    one.half.number = ++one.half.stream->queued;
    one.half.stream->open.insert(one.half.number);
    (one.is_send ? one.comm->clique->sends : one.comm->clique->receives)[one.way].push_back(
        one.half);
  }
  for (const Queued& one : group) Match(*one.comm->clique, one.way);
  group.clear();
  return ncclInProgress;
}

ncclResult_t ncclSend(const void* from, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      void* stream) {
  return Queue(comm, {comm->rank, peer}, true, const_cast<void*>(from), count, stream);
}

ncclResult_t ncclRecv(void* to, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                      void* stream) {
  return Queue(comm, {peer, comm->rank}, false, to, count, stream);
}

const char* ncclGetErrorString(ncclResult_t result) {
  return result == static_cast<ncclResult_t>(6) ? "remote process exited" : "some error";
}

outboard::test::FakeNccl outboard_fake_nccl() {
  return {.mark =
              [](FakeStream* stream) {
                std::lock_guard guard(lock);
                return stream->queued;
              },
          .is_done =
              [](FakeStream* stream, uint64_t mark) {
                std::lock_guard guard(lock);
                return stream->open.empty() || *stream->open.begin() > mark;
              },
          .hang =
              [](bool on) {
                std::lock_guard guard(lock);
                hangs = on;
              },
          .fail =
              [](int rank, int result) {
                std::lock_guard guard(lock);
                failing.erase(rank);
                if (result != 0) failing[rank] = result;
              },
          .set_version =
              [](int version) {
                std::lock_guard guard(lock);
                library_version = version;
              },
          .communicators =
              [] {
                std::lock_guard guard(lock);
                return alive;
              }};
}

}  // extern "C"
