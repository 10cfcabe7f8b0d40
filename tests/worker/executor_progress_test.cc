// A frame of long work is answered while it goes on.
#include <gtest/gtest.h>

#include <vector>

#include "compiler/ir/build.h"
#include "compiler/ir/encoding.h"
#include "tests/support/client_items.h"
#include "tests/support/device.h"
#include "worker/engine/engine.h"
#include "worker/executor/executor_core.h"

namespace outboard::worker {
namespace {

using test::Item;

// Items through which each frame of answers to one frame of four Runs says that all is done, of
// which each look at the clock finds `ms_later`.
std::vector<uint64_t> DoneThrough(uint64_t ms_later) {
  const auto engine = MakeReferenceEngine(test::MakeDevice(1 << 20));
  uint64_t ns = 0;
  ExecutorOptions options;
  options.now_ns = [&] { return ns += ms_later * 1'000'000; };
  ExecutorCore core(engine.get(), options);
  Graph g;
  const UOp* const x = Param(g, 0, DType::kU8, {4});
  const EncodedGraph graph = *EncodeGraph(Sink(g, {Add(g, x, x)}));
  proto::ClientFrame open, work;
  open.set_epoch(1);
  work.set_epoch(1);
  open.add_items()->mutable_open();
  *work.add_items() = Item::Put(1, 1, "abcd");
  *work.add_items() = Item::Graph(graph.id.ToBytes(), graph.bytes);
  for (uint64_t seq = 2; seq < 6; ++seq)
    *work.add_items() = Item::Run(seq, graph.id.ToBytes(), seq - 1, seq);
  core.On(std::move(open));
  std::vector<uint64_t> through;
  for (const proto::ServerFrame& answer : core.On(std::move(work)))
    for (const proto::ServerItem& item : answer.items()) {
      EXPECT_FALSE(item.has_failed()) << item.failed().message();
      if (item.has_done() && item.done().values_size() == 0)
        through.push_back(item.done().through_seq());
    }
  return through;
}

TEST(ExecutorProgress, LongWorkIsAnsweredAheadOfTheNextRun) {
  EXPECT_EQ(DoneThrough(20), (std::vector<uint64_t>{1, 2, 3, 4, 5}));
  // Only every second Run comes 20 ms behind the last answer.
  EXPECT_EQ(DoneThrough(10), (std::vector<uint64_t>{2, 4, 5}));
}

TEST(ExecutorProgress, ShortWorkIsAnsweredOnce) {
  EXPECT_EQ(DoneThrough(1), (std::vector<uint64_t>{5}));
}

}  // namespace
}  // namespace outboard::worker
