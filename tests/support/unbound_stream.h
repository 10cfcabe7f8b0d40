// A server's stream that no call is bound to: takes what is sent, writes nothing, and never ends.
// For the code between two streams, without a network.
#pragma once

#include "gateway/service/stream.h"

namespace outboard::test {

template <typename In, typename Out>
class UnboundStream final : public gateway::Stream<In, Out> {
 private:
  bool OnMessage(In) override { return true; }
  void OnReadEnd() override {}
  void OnGone() override {}
};

}  // namespace outboard::test
