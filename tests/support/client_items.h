// Items of a client's frames, as a test writes them.
#pragma once

#include <string>

#include "compiler/ir/dtype.h"
#include "proto/cloud.pb.h"

namespace outboard::test {

struct Item {
  static proto::ClientItem Put(uint64_t seq, uint64_t handle, const std::string& bytes) {
    proto::ClientItem item;
    item.set_seq(seq);
    proto::Put& put = *item.mutable_put();
    put.set_handle(handle);
    put.set_dtype(static_cast<uint32_t>(DType::kU8));
    put.add_dims(bytes.size());
    put.set_total_bytes(bytes.size());
    put.set_data(bytes);
    return item;
  }
  static proto::ClientItem Fetch(uint64_t seq, uint64_t handle) {
    proto::ClientItem item;
    item.set_seq(seq);
    item.mutable_fetch()->add_handles(handle);
    return item;
  }
  static proto::ClientItem Release(uint64_t seq, uint64_t handle) {
    proto::ClientItem item;
    item.set_seq(seq);
    item.mutable_release()->add_handles(handle);
    return item;
  }
  static proto::ClientItem Graph(const std::string& id, const std::string& bytes) {
    proto::ClientItem item;
    item.mutable_graph()->set_id(id);
    item.mutable_graph()->set_total_bytes(bytes.size());
    item.mutable_graph()->set_data(bytes);
    return item;
  }
  static proto::ClientItem Run(uint64_t seq, const std::string& graph, uint64_t input,
                               uint64_t output) {
    proto::ClientItem item;
    item.set_seq(seq);
    item.mutable_run()->set_graph_id(graph);
    item.mutable_run()->add_inputs(input);
    item.mutable_run()->add_outputs(output);
    item.mutable_run()->add_fetch(0);
    return item;
  }
};

}  // namespace outboard::test
