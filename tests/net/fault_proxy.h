// A proxy for stream sockets (TCP or unix) that injects network faults. Delay, jitter and rate
// shape each direction of every connection; bytes of one connection stay in order. Tests trigger
// cuts, half-closes, stalls, refusals and connections that overtake each other.
//
// Times are exact to about 0.1 ms (timerfd). Delayed data is buffered here, at most kQueueBytesMax
// per direction of a connection; then the sender gets backpressure, as from a full pipe. Setting up
// a new connection takes a round trip, as with TCP.
//
// Threads: one of its own does all the work; every method may be called from any thread, also while
// connections are open, and has taken effect when it returns. Jitter comes from a seed: a run can
// be repeated as far as the programs on both sides send the same pieces.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace outboard::test {

enum class Way { kUp, kDown };  // from the connecting side to the target, and back

struct Shape {
  std::chrono::microseconds delay{0};
  std::chrono::microseconds jitter{0};  // added delay, drawn for each piece, at most this
  uint64_t bytes_per_s = 0;             // 0: no limit
};

class FaultProxy {
 public:
  static constexpr size_t kQueueBytesMax = size_t{32} << 20;

  // "127.0.0.1:6667", "unix:/path"; hosts are numeric. Port 0: any. A listener that cannot be made
  // throws std::runtime_error.
  explicit FaultProxy(std::string target, const std::string& listen = "127.0.0.1:0",
                      uint64_t seed = 1);
  ~FaultProxy();
  FaultProxy(const FaultProxy&) = delete;
  FaultProxy& operator=(const FaultProxy&) = delete;

  // The address it listens at, in the spelling of `listen`.
  const std::string& address() const;

  // ---- shape; applies to data read from now on
  void SetShape(Way way, Shape shape);
  void SetRoundTrip(std::chrono::microseconds round_trip);  // half of it each way, nothing else

  // ---- cuts. Data that precedes a cut arrives, then both sides read the end.
  void CutAll();                           // every connection there is
  void CutAfter(Way way, uint64_t bytes);  // the first connection to pass this many; once
  // Returns how many of `bytes` still pass before the connection is cut; nullopt: all of them, and
  // no cut. Called for each piece as it is read, on the proxy's thread; must not call the proxy.
  // Connections count from 0.
  using Cutter =
      std::function<std::optional<size_t>(uint64_t connection, Way way, std::string_view bytes)>;
  void SetCutter(Cutter cutter);

  // ---- other faults
  // The receivers of this direction read the end, on every open connection, and data sent to them
  // is lost; the other direction continues.
  void HalfClose(Way way);
  // Nothing passes in this direction until Resume; connections stay open, and new ones stall too.
  void Stall(Way way);
  void Resume(Way way);
  void StallFor(Way way, std::chrono::microseconds time);
  // Delays setting up the next connection until a later one is set up.
  void HoldNextConnection();
  // Refuses connections until called with false, at the same address. Open connections stay.
  void SetRefuse(bool refuse);

  struct Counters {
    uint64_t connections = 0;  // accepted
    uint64_t open = 0;         // of them, now
    uint64_t cut = 0;
    uint64_t unreachable = 0;               // the target could not be connected
    uint64_t bytes_up = 0, bytes_down = 0;  // passed on
  };
  Counters counters() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace outboard::test
