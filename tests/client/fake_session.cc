#include "tests/client/fake_session.h"

#include <gtest/gtest.h>

#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "client/session/core/failure.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/spec.h"
#include "compiler/reference/interpret.h"
#include "compiler/rewrite/bind.h"

namespace outboard {
namespace {
std::string RootOf(const wire::BlobName& name) { return std::string(wire::AsBytes(name.root)); }

absl::Status Closed() { return absl::FailedPreconditionError("the session is closed"); }

// One evaluation after another, as proto/cloud.proto says.
absl::StatusOr<std::vector<HostTensor>> Repeated(const session::RunRequest& request,
                                                 const UOp* sink, std::vector<HostTensor> inputs,
                                                 std::vector<Binding> bindings) {
  std::vector<HostTensor> outputs, stacks(request.stack.size());
  for (uint32_t k = 0; k < request.repeat; ++k) {
    OB_ASSIGN_OR_RETURN(outputs, Interpret(sink, inputs, bindings));
    for (size_t s = 0; s < stacks.size(); ++s) {
      const HostTensor& part = outputs[request.stack[s]];
      stacks[s].dtype = part.dtype;
      stacks[s].dims = part.dims;
      stacks[s].dims.insert(stacks[s].dims.begin(), request.repeat);
      stacks[s].bytes += part.bytes;
    }
    for (const session::Carry& carry : request.carry) inputs[carry.input] = outputs[carry.output];
    for (Binding& binding : bindings)
      if (request.cursor && request.cursor->slot == binding.slot)
        binding.value += request.cursor->stride;
  }
  for (size_t s = 0; s < stacks.size(); ++s) outputs[request.stack[s]] = std::move(stacks[s]);
  return outputs;
}
}  // namespace

uint64_t FakeSession::NewHandle() {
  const std::lock_guard lock(mutex_);
  return ++last_handle_;
}

absl::Status FakeSession::Put(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                              std::string_view bytes) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Closed();
  ++puts;
  HostTensor value{dtype, {dims.begin(), dims.end()}, std::string(bytes)};
  EXPECT_EQ(value.ElementCount() * ByteWidth(dtype), static_cast<int64_t>(bytes.size()));
  EXPECT_TRUE(buffers_.emplace(handle, Buffer{std::move(value), {}}).second) << "a handle twice";
  return absl::OkStatus();
}

absl::StatusOr<wire::Uploaded> FakeSession::Upload(std::span<const wire::BlobSource> sources) {
  std::lock_guard lock(mutex_);
  ++uploads;
  wire::Uploaded uploaded;
  for (const wire::BlobSource& source : sources) {
    if (source.name.has_value() && blobs_.contains(RootOf(*source.name))) {
      uploaded.names.push_back(*source.name);
      continue;
    }
    std::string bytes(source.size_bytes, '\0');
    if (absl::Status status = source.read(0, bytes); !status.ok()) return status;
    blob_bytes_read += static_cast<int64_t>(bytes.size());
    uploaded.names.push_back(wire::NameBlob(bytes));
    blobs_[RootOf(uploaded.names.back())] = std::move(bytes);
  }
  return uploaded;
}

absl::Status FakeSession::PutBlob(uint64_t handle, DType dtype, std::span<const int64_t> dims,
                                  uint64_t size_bytes, std::string_view root) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Closed();
  const auto blob = blobs_.find(std::string(root));
  if (blob == blobs_.end()) return absl::NotFoundError("no such blob");
  EXPECT_EQ(blob->second.size(), size_bytes);
  HostTensor value{dtype, {dims.begin(), dims.end()}, blob->second};
  EXPECT_EQ(value.ElementCount() * ByteWidth(dtype), static_cast<int64_t>(size_bytes));
  EXPECT_TRUE(buffers_.emplace(handle, Buffer{std::move(value), {}}).second) << "a handle twice";
  return absl::OkStatus();
}

absl::StatusOr<uint64_t> FakeSession::Run(const session::RunRequest& request) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Closed();
  ++runs;
  donated += static_cast<int64_t>(request.donate.size());
  last = request;
  graphs_.insert(request.graph_id);
  if (!decode) {
    for (const uint32_t index : request.donate) buffers_.erase(request.inputs[index]);
    for (const uint64_t handle : request.outputs) buffers_[handle];
    provenance_.Remember(++last_seq_, request.origin);
    return last_seq_;
  }
  EXPECT_EQ(IdOfEncoding(*request.graph).bytes, request.graph_id);
  Graph graph;
  OB_ASSIGN_OR_RETURN(const UOp* sink, DecodeGraph(graph, *request.graph));
  EXPECT_EQ(ParamsOf(sink).size(), request.inputs.size());
  EXPECT_EQ(sink->src.size(), request.outputs.size());
  std::vector<HostTensor> inputs;
  absl::Status status = std::exchange(fail_next_run, absl::OkStatus());
  for (const uint64_t handle : request.inputs) {
    const auto found = buffers_.find(handle);
    if (found == buffers_.end()) {
      ADD_FAILURE() << "a Run reads handle " << handle << ", which does not exist";
      return absl::InternalError("unknown handle");
    }
    if (status.ok()) status = found->second.poison;
    inputs.push_back(found->second.value);
  }
  std::vector<HostTensor> outputs;
  if (status.ok() && evaluate) {
    absl::StatusOr<std::vector<HostTensor>> results =
        Repeated(request, sink, std::move(inputs), request.bindings);
    if (results.ok()) outputs = *std::move(results);
    status = results.status();
  }
  if (!status.ok() && !session::FailureOf(status)) {
    session::Failure failure;
    failure.seq = last_seq_ + 1;
    failure.retryable = absl::IsResourceExhausted(status);
    const std::vector<const UOp*> order = PostOrder(sink);
    for (size_t i = 0; i < order.size() && !failure.node; ++i)
      if (fail_op == order[i]->op) failure.node = static_cast<uint32_t>(i);
    status = session::WithFailure(status, failure);
  }
  for (const uint32_t index : request.donate) {
    EXPECT_EQ(buffers_.erase(request.inputs[index]), 1u);
  }
  for (size_t i = 0; i < request.outputs.size(); ++i) {
    Buffer buffer;
    buffer.poison = status;
    if (!outputs.empty()) {
      buffer.value = std::move(outputs[i]);
    } else {
      const UOp& result = *sink->src[i];
      OB_ASSIGN_OR_RETURN(std::vector<int64_t> dims, DimsAt(result.shape, request.bindings));
      buffer.value = {result.dtype, std::move(dims), {}};
      if (status.ok())
        buffer.value.bytes.resize(buffer.value.ElementCount() * ByteWidth(result.dtype));
    }
    EXPECT_TRUE(buffers_.emplace(request.outputs[i], std::move(buffer)).second);
  }
  provenance_.Remember(++last_seq_, request.origin);
  for (const uint32_t index : request.fetch)
    tickets_[{last_seq_, index}] = buffers_.at(request.outputs[index]);
  return last_seq_;
}

absl::StatusOr<uint64_t> FakeSession::Fetch(std::span<const uint64_t> handles) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Closed();
  ++fetches;
  ++last_seq_;
  for (size_t i = 0; i < handles.size(); ++i) {
    const auto found = buffers_.find(handles[i]);
    if (found == buffers_.end()) {
      ADD_FAILURE() << "Fetch of handle " << handles[i] << ", which does not exist";
      return absl::InternalError("unknown handle");
    }
    tickets_[{last_seq_, static_cast<uint32_t>(i)}] = found->second;
  }
  return last_seq_;
}

absl::StatusOr<uint64_t> FakeSession::Save(std::string_view name,
                                           std::span<const session::SaveEntry> entries) {
  const std::lock_guard lock(mutex_);
  if (closed_) return Closed();
  ++last_seq_;
  std::map<std::string, HostTensor> arrays;
  session::Saved saved;
  for (const session::SaveEntry& entry : entries) {
    const auto known = buffers_.find(entry.handle);
    if (known == buffers_.end()) {
      ADD_FAILURE() << "Save of handle " << entry.handle << ", which does not exist";
      return absl::InternalError("unknown handle");
    }
    const Buffer& buffer = known->second;
    if (!buffer.poison.ok()) {
      saved_.emplace(last_seq_, buffer.poison);
      return last_seq_;
    }
    EXPECT_TRUE(arrays.emplace(entry.name, buffer.value).second) << "an entry twice";
    saved.total_bytes += buffer.value.bytes.size();
  }
  if (name == "full") {
    saved_.emplace(last_seq_, absl::ResourceExhaustedError("the quota of 5 bytes is used up"));
    return last_seq_;
  }
  checkpoints[std::string(name)] = std::move(arrays);
  saved_.emplace(last_seq_, saved);
  return last_seq_;
}

absl::StatusOr<session::Saved> FakeSession::AwaitSaved(uint64_t seq) {
  const std::lock_guard lock(mutex_);
  ++awaits;
  const auto found = saved_.extract(seq);
  if (found.empty()) return absl::FailedPreconditionError("a save taken twice");
  absl::StatusOr<session::Saved>& saved = found.mapped();
  if (!saved.ok()) return provenance_.Explain(saved.status());
  return saved;
}

absl::StatusOr<std::vector<session::StoredArray>> FakeSession::Stored(const std::string& name) {
  const std::lock_guard lock(mutex_);
  const auto found = checkpoints.find(name);
  if (found == checkpoints.end()) return absl::NotFoundError("nothing is stored as " + name);
  std::vector<session::StoredArray> arrays;
  for (const auto& [array, value] : found->second) {
    const std::string root = RootOf(wire::NameBlob(value.bytes));
    blobs_[root] = value.bytes;
    arrays.push_back({array, value.dtype, value.dims, value.bytes.size(), root});
  }
  return arrays;
}

void FakeSession::Release(uint64_t handle) {
  const std::lock_guard lock(mutex_);
  if (closed_) return;
  EXPECT_EQ(buffers_.erase(handle), 1u) << "released twice: " << handle;
}

absl::StatusOr<HostTensor> FakeSession::Await(uint64_t seq, uint32_t index) {
  const std::lock_guard lock(mutex_);
  ++awaits;
  const auto found = tickets_.find({seq, index});
  if (found == tickets_.end()) return absl::FailedPreconditionError("a value taken twice");
  Buffer buffer = std::move(found->second);
  tickets_.erase(found);
  if (!buffer.poison.ok()) return provenance_.Explain(buffer.poison);
  return std::move(buffer.value);
}

absl::Status FakeSession::Close() {
  closed_ = true;
  return absl::OkStatus();
}

}  // namespace outboard
