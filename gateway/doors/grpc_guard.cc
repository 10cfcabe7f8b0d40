// Replaces functions of libgrpc by defining symbols of their names: the loader takes those of
// the program first, and each calls the one it replaces. Invariants, under the lock:
//   H1  A parser is in open_blocks exactly while a frame without END_HEADERS was its last one.
//   H2  A block in open_blocks has at most kHeaderFramesMax frames and kHeaderBlockBytesMax bytes,
//       or its connection is ending.
// Compiled for gRPC 1.51 alone, whose names and arguments these are. Where the library that is
// loaded says that it is another version, calls are passed on as they are.
#include "gateway/doors/grpc_guard.h"

#include <dlfcn.h>
#include <grpc/grpc.h>
#include <grpc/slice.h>
#include <grpcpp/version_info.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <string_view>
#include <unordered_map>

#include "absl/status/status.h"
#include "gateway/base/limits.h"
#include "telemetry/counters.h"
#include "telemetry/log.h"

#if GRPC_CPP_VERSION_MAJOR == 1 && GRPC_CPP_VERSION_MINOR == 51

namespace outboard::gateway {
namespace {

constexpr std::string_view kCoreVersion = "29.0.0";  // of gRPC 1.51

bool IsKnownVersion() {
  static const bool known = grpc_version_string() == kCoreVersion;
  return known;
}

// grpc_core::HPackParser, of src/core/ext/transport/chttp2/transport/hpack_parser.h in gRPC 1.51.
#define OB_BEGIN_FRAME                                                       \
  "_ZN9grpc_core11HPackParser10BeginFrameEP19grpc_metadata_batchjNS0_8Bound" \
  "aryENS0_8PriorityENS0_7LogInfoE"
#define OB_PARSE "_ZN9grpc_core11HPackParser5ParseERK10grpc_sliceb"
#define OB_DESTROY "_ZN9grpc_core11HPackParserD1Ev"
// grpc_core::chttp2::TransportFlowControl, of flow_control.h beside it.
#define OB_TARGET "_ZN9grpc_core6chttp220TransportFlowControl12TargetLogBdpEv"

constexpr uint8_t kNoBoundary = 0;  // HPackParser::Boundary::None: a frame without END_HEADERS

struct HeaderBlock {
  size_t bytes = 0;
  int frames = 0;
};

std::mutex mutex;
std::atomic<size_t> open_count{0};  // of open_blocks; nearly always 0, which costs no lock
std::atomic<uint64_t> long_blocks{0};

std::unordered_map<const void*, HeaderBlock>& OpenBlocks() {
  // Outlives gRPC's threads.
  static auto* blocks = new std::unordered_map<const void*, HeaderBlock>;
  return *blocks;
}

void Forget(const void* parser) {
  if (open_count.load() == 0) return;
  std::lock_guard lock(mutex);
  OpenBlocks().erase(parser);
  open_count = OpenBlocks().size();
}

// True if `parser` is within a block that is too long with `bytes` more.
bool IsTooLong(const void* parser, size_t bytes) {
  if (open_count.load() == 0) return false;
  std::lock_guard lock(mutex);
  const auto at = OpenBlocks().find(parser);
  if (at == OpenBlocks().end()) return false;
  HeaderBlock& block = at->second;
  block.bytes += bytes;
  return block.frames > kHeaderFramesMax || block.bytes > kHeaderBlockBytesMax;
}

template <typename Function>
Function* Replaced(const char* name) {
  return reinterpret_cast<Function*>(dlsym(RTLD_NEXT, name));
}

}  // namespace

// The arguments as the machine passes them: both enumerations have 8 bits, LogInfo has 64.
void GuardedBeginFrame(void* parser, void* metadata, uint32_t list_bytes_max, uint8_t boundary,
                       uint8_t priority, uint64_t log_info) __asm__(OB_BEGIN_FRAME);
absl::Status GuardedParse(void* parser, const grpc_slice& slice, bool is_last) __asm__(OB_PARSE);
void GuardedDestroy(void* parser) __asm__(OB_DESTROY);
double GuardedTargetLog(void* flow_control) __asm__(OB_TARGET);

void GuardedBeginFrame(void* parser, void* metadata, uint32_t list_bytes_max, uint8_t boundary,
                       uint8_t priority, uint64_t log_info) {
  static const auto replaced = Replaced<decltype(GuardedBeginFrame)>(OB_BEGIN_FRAME);
  if (!IsKnownVersion())
    return replaced(parser, metadata, list_bytes_max, boundary, priority, log_info);
  if (boundary == kNoBoundary) {
    std::lock_guard lock(mutex);
    ++OpenBlocks()[parser].frames;
    open_count = OpenBlocks().size();
  } else {
    Forget(parser);  // H1
  }
  // A peer that has not acknowledged the server's settings may send 16 MiB by gRPC's own limit.
  replaced(parser, metadata, std::min(list_bytes_max, kHeaderListBytesMax), boundary, priority,
           log_info);
}

absl::Status GuardedParse(void* parser, const grpc_slice& slice, bool is_last) {
  static const auto replaced = Replaced<decltype(GuardedParse)>(OB_PARSE);
  if (!IsTooLong(parser, GRPC_SLICE_LENGTH(slice))) return replaced(parser, slice, is_last);
  ++long_blocks;
  telemetry::CountRefused(telemetry::Refusal::kConnections);
  telemetry::LogWarning("refused", {{"reason", "header_block"}});
  // Of no stream, so that gRPC ends the connection.
  return absl::ResourceExhaustedError("a block of headers is too long");
}

void GuardedDestroy(void* parser) {
  static const auto replaced = Replaced<decltype(GuardedDestroy)>(OB_DESTROY);
  Forget(parser);
  replaced(parser);
}

double GuardedTargetLog(void* flow_control) {
  static const auto replaced = Replaced<decltype(GuardedTargetLog)>(OB_TARGET);
  static const double most = std::log2(static_cast<double>(kWindowBytes));
  const double target = replaced(flow_control);
  return IsKnownVersion() ? std::min(target, most) : target;
}

bool IsGrpcGuardInPlace() {
  const auto is_called = [](const char* name, const void* ours) {
    return dlsym(RTLD_DEFAULT, name) == ours && dlsym(RTLD_NEXT, name) != nullptr;
  };
  return IsKnownVersion() &&
         is_called(OB_BEGIN_FRAME, reinterpret_cast<void*>(&GuardedBeginFrame)) &&
         is_called(OB_PARSE, reinterpret_cast<void*>(&GuardedParse)) &&
         is_called(OB_DESTROY, reinterpret_cast<void*>(&GuardedDestroy)) &&
         is_called(OB_TARGET, reinterpret_cast<void*>(&GuardedTargetLog));
}

uint64_t LongHeaderBlocks() { return long_blocks.load(); }

}  // namespace outboard::gateway

#else

namespace outboard::gateway {

bool IsGrpcGuardInPlace() { return false; }
uint64_t LongHeaderBlocks() { return 0; }

}  // namespace outboard::gateway

#endif
