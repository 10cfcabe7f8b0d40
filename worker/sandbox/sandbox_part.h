// The parts of the sandbox that a kernel may refuse, and what follows for whoever runs the worker.
#pragma once

#include <cstdint>
#include <string>

namespace outboard::worker {

// Bits of a SandboxParts.
enum class SandboxPart : uint32_t {
  kUser = 1 << 0,         // a user of its own, without rights outside
  kFiles = 1 << 1,        // an empty root
  kProcesses = 1 << 2,    // no other process in sight
  kIpc = 1 << 3,          // no shared memory or queues of others
  kHostName = 1 << 4,     // the machine's name is not told
  kNetwork = 1 << 5,      // no interface, not even loopback
  kCgroup = 1 << 6,       // the machine's control groups are not told
  kSystemCalls = 1 << 7,  // those of the list only
};

// A set of parts.
class SandboxParts {
 public:
  constexpr SandboxParts() = default;
  constexpr explicit SandboxParts(uint32_t bits) : bits_(bits & kMask) {}
  static constexpr SandboxParts All() { return SandboxParts(kMask); }

  constexpr bool has(SandboxPart part) const { return (bits_ & static_cast<uint32_t>(part)) != 0; }
  constexpr void Add(SandboxPart part) { bits_ |= static_cast<uint32_t>(part); }
  constexpr void Remove(SandboxPart part) { bits_ &= ~static_cast<uint32_t>(part); }
  constexpr uint32_t bits() const { return bits_; }
  constexpr bool none() const { return bits_ == 0; }
  constexpr bool all() const { return bits_ == kMask; }
  constexpr SandboxParts operator&(SandboxParts other) const {
    return SandboxParts(bits_ & other.bits_);
  }
  constexpr bool operator==(const SandboxParts&) const = default;

 private:
  static constexpr uint32_t kMask = (1u << 8) - 1;
  uint32_t bits_ = 0;
};

// Names what `parts` lacks, for people: "user namespaces, network namespaces"; empty: nothing.
std::string MissingParts(SandboxParts parts);

}  // namespace outboard::worker
