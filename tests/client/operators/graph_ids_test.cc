// The ids of the graphs that programs record: every row of the table with its gradient, models,
// optimisers, the examples' trainings, captured and repeated steps, symbolic shapes, promotions. A
// graph's id names what the cloud keeps of it, so it stays as it is however an operator is written
// down. And the lines that go with the graphs: the user's, never the library's.
//
// graph_ids.txt has one line each: id, name. Where another graph is meant, OUTBOARD_UPDATE=1
// rewrites it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "client/autograd/backward.h"
#include "client/capture/jit.h"
#include "client/capture/repeat.h"
#include "client/examples/gpt_decoder.h"
#include "client/examples/mnist.h"
#include "client/lazy/items.h"
#include "client/lazy/lazy_graph.h"
#include "client/nn/layers.h"
#include "client/nn/optim.h"
#include "client/ops/elementwise/activations.h"
#include "client/ops/elementwise/arithmetic.h"
#include "client/ops/index/index.h"
#include "client/ops/product/product.h"
#include "client/ops/random/random.h"
#include "client/ops/reduce/losses.h"
#include "client/ops/reduce/norms.h"
#include "compiler/ir/encoding.h"
#include "compiler/ir/uop.h"
#include "tests/client/fake_session.h"
#include "tests/client/operators/draw.h"
#include "tests/support/paths.h"

namespace outboard::operators {
namespace {

using Ids = std::map<std::string, std::string>;
using List = std::vector<Tensor>;

// Keeps the id of every Run.
class Recorded : public FakeSession {
 public:
  absl::StatusOr<uint64_t> Run(const session::RunRequest& request) override {
    const auto& id = request.graph_id;
    ids.push_back(absl::BytesToHexString({reinterpret_cast<const char*>(id.data()), id.size()}));
    return FakeSession::Run(request);
  }
  std::vector<std::string> ids;
};

// Runs programs, each in a session of its own.
class GraphIds : public testing::Test {
 protected:
  ~GraphIds() override { SetSession(nullptr); }

  void Begin(bool evaluate) {
    session_ = std::make_shared<Recorded>();
    session_->evaluate = evaluate;
    SetSession(session_);
    internal::LazyGraph::Exchange(nullptr);
    Tensor::manual_seed(7);
  }

  void End(const std::string& name) {
    Tensor::manual_seed(7);  // gives up the random state's buffers
    for (size_t i = 0; i < session_->ids.size(); ++i) {
      std::string numbered = absl::StrCat(name, " #", i);
      while (ids_.contains(numbered)) numbered += "'";  // rows of one form
      ids_[numbered] = session_->ids[i];
    }
  }

  // A program and the Runs that it comes to.
  void Add(const std::string& name, const std::function<void()>& program, bool evaluate = false) {
    Begin(evaluate);
    program();
    EXPECT_FALSE(session_->ids.empty()) << name << " runs nothing";
    End(name);
  }

  std::shared_ptr<Recorded> session_;
  Ids ids_;
};

Tensor Floats(const Dims& dims) {
  return Tensor::from<float>(std::vector<float>(CountOf(dims), 0.5f), dims);
}

// The rows of the table: all types in one graph, the gradient of f64 in another.
std::vector<Row> AllRows() {
  std::vector<Row> rows;
  for (const Group& group : AllGroups())
    rows.insert(rows.end(), group.rows.begin(), group.rows.end());
  return rows;
}

List Made(const Row& row) {
  List made;
  for (int code = 1; code < kDTypeCount; ++code) {
    const auto dtype = static_cast<DType>(code);
    if (!Has(row.types, dtype)) continue;
    Tensor::manual_seed(7);
    made.push_back(row.make(DrawAll(row, dtype).tensors));
  }
  return made;
}

List GradientsOf(const Row& row) {
  const Drawn x = DrawAll(row, DType::kF64);
  Tensor::manual_seed(7);
  const Tensor y = row.make(x.tensors);
  List leaves;
  for (size_t k = 0; k < row.operands.size(); ++k)
    if (!row.operands[k].dtype) leaves.push_back(x.tensors[k]);
  return y.gradient(leaves, Upload(Draw({y.shape(), 0.5, 2}, DType::kF64, 99), DType::kF64));
}

template <typename Optimizer, typename... Args>
void TwoSteps(const Args&... args) {
  Tensor w = Floats({3, 2}), b = Floats({1, 2});
  Optimizer optimizer({w, b}, args...);
  for (int i = 0; i < 2; ++i) {
    const Tensor loss = (Floats({4, 3}).matmul(w) + b).square().mean();
    loss.backward();
    optimizer.step({loss});
  }
}

using Operation = std::function<Tensor(const Tensor&, const Tensor&)>;
const std::vector<std::pair<std::string, Operation>>& Operations() {
  static const std::vector<std::pair<std::string, Operation>> kOperations = {
      {"add", [](auto& a, auto& b) { return a + b; }},
      {"subtract", [](auto& a, auto& b) { return a - b; }},
      {"multiply", [](auto& a, auto& b) { return a * b; }},
      {"divide", [](auto& a, auto& b) { return a / b; }},
      {"less", [](auto& a, auto& b) { return a < b; }},
      {"at least", [](auto& a, auto& b) { return a >= b; }},
      {"maximum", [](auto& a, auto& b) { return a.maximum(b); }},
      {"minimum", [](auto& a, auto& b) { return a.minimum(b); }},
      {"pow", [](auto& a, auto& b) { return a.pow(b); }},
      {"floor_div", [](auto& a, auto& b) { return floor_div(a, b); }},
      {"floor_mod", [](auto& a, auto& b) { return floor_mod(a, b); }},
      {"isclose", [](auto& a, auto& b) { return isclose(a, b); }},
      {"copysign", [](auto& a, auto& b) { return copysign(a, b); }},
      {"logaddexp", [](auto& a, auto& b) { return logaddexp(a, b); }},
      {"matmul", [](auto& a, auto& b) { return a.matmul(b); }},
      {"where", [](auto& a, auto& b) { return (a != 0).where(a, b); }},
      {"mse_loss", [](auto& a, auto& b) { return a.mse_loss(b); }},
      {"numbers", [](auto& a, auto& b) { return (a * 2 + 1.5 - b) / 3; }},
  };
  return kOperations;
}

// Every pair of types that the operation has.
void Promotions(const Operation& function) {
  List made;
  for (int a = 1; a < kDTypeCount; ++a)
    for (int b = 1; b < kDTypeCount; ++b) {
      const Tensor x = Tensor::from_bytes(static_cast<DType>(a), {2, 1},
                                          std::string(2 * ByteWidth(static_cast<DType>(a)), '\1'));
      const Tensor y = Tensor::from_bytes(static_cast<DType>(b), {1, 3},
                                          std::string(3 * ByteWidth(static_cast<DType>(b)), '\1'));
      try {
        made.push_back(function(x, y));
      } catch (const Error& error) {
        EXPECT_EQ(error.status().code(), absl::StatusCode::kInvalidArgument) << error.what();
      }
    }
  realize(made);
}

// SymShape of a variable, where the library takes them.
void Symbolic() {
  const Variable n("n", 1, 6);
  const SymInt rows = n.bind(4);
  const Tensor table = Floats({6, 2}), x = table.slice(0, 0, rows);
  Tensor all = x.sum(0), mean = x.mean(0), most = x.max({0, 1}), soft = x.softmax(0);
  Tensor product = x.matmul(Floats({2, 3})), turned = x.transpose().matmul(x);
  Tensor log = x.log_softmax(1), power = x.pow(2.5), rms = x.square().mean(1);
  Tensor padded = x.pad({{1, 0}, {0, 0}}), wide = x.unsqueeze(0).expand({2, rows, 2});
  Tensor seen = scaled_dot_product_attention(Floats({1, 2}), x, x);
  Tensor scaled = x * rows;
  realize(List{all, mean, most, product, turned, rms, seen, scaled.sum(), power.sum(), log.sum(),
               soft.sum(), padded.sum(), wide.sum()});
}

Tensor CurveLoss(const nn::Linear& hidden, const nn::Linear& out, const Tensor& x) {
  return out(hidden(x).tanh()).mse_loss((x * 3).sin() * 0.5 + x);
}

void LinearExample() {
  Tensor::manual_seed(1);
  const nn::Linear hidden(1, 16), out(16, 1);
  nn::StateDict state;
  hidden.Collect(state, "hidden");
  out.Collect(state, "out");
  optim::Adam adam(nn::parameters(state), 0.02);
  const Tensor x = Tensor::uniform({64, 1}, -1, 1).realize();
  for (int step = 0; step < 2; ++step) {
    const Tensor loss = CurveLoss(hidden, out, x);
    loss.backward();
    adam.step({loss});
  }
}

void CapturedTraining() {
  const nn::Linear hidden(1, 4), out(4, 1);
  nn::StateDict state;
  hidden.Collect(state, "hidden");
  out.Collect(state, "out");
  optim::SGD sgd(nn::parameters(state), 0.1, 0.9);
  Jit step([&](const List& x, const std::vector<SymInt>&) -> List {
    const TrainingMode training(true);
    const Tensor loss = CurveLoss(hidden, out, x[0].dropout(0.25) + Tensor::rand({8, 1}));
    loss.backward();
    sgd.step({}, {loss});
    return {loss};
  });
  for (int i = 0; i < 4; ++i) step({Floats({8, 1})});
}

void RepeatedTraining() {
  Tensor w = Floats({2, 2});
  optim::Adam adam({w});
  (void)repeat(3, [&] {
    const Tensor loss = Tensor::randn({4, 2}).matmul(w).square().mean();
    loss.backward();
    adam.step({}, {loss});
    return loss;
  });
  const Variable i("i", 0, 9);
  (void)repeat(3, i.bind(0), [&](const SymInt& now) { return (w * now).sum(); });
}

void NormInTraining() {
  const TrainingMode training(true);
  nn::BatchNorm2d norm(3);
  const nn::Conv2d conv(2, 3, 3);
  optim::AdamW adam({norm.weight, norm.bias, conv.weight});
  for (int i = 0; i < 2; ++i) {
    const Tensor loss = norm(conv(Floats({2, 2, 6, 6}))).relu().max_pool2d().mean();
    loss.backward();
    adam.step({loss});
  }
}

void RandomNumbers() {
  List made;
  for (const DType dtype : {DType::kF64, DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    made.push_back(Tensor::rand({3, 2}, dtype));
    made.push_back(Tensor::uniform({4}, -1, 3, dtype));
    made.push_back(Tensor::randn({5}, dtype));
    made.push_back(normal({2}, 1, 0.5, dtype));
    made.push_back(Tensor::kaiming_uniform({3, 4}, 0.01, dtype));
    made.push_back(kaiming_normal({3, 4}, 0.01, dtype));
    made.push_back(glorot_uniform({3, 4}, dtype));
    made.push_back(scaled_uniform({3, 4}, dtype));
  }
  for (const DType dtype : {DType::kI8, DType::kU16, DType::kI32, DType::kU64})
    made.push_back(randint({6}, 3, 90, dtype));
  made.push_back(randperm(7));
  made.push_back(multinomial(Floats({2, 4}), 3, true));
  realize(made);
}

void Assignments() {
  Tensor x = Floats({4, 3});
  set_items(x, {Slice{1, 3}, 0}, 2);
  set_items(x, {Tensor::arange(2), kEllipsis}, Floats({2, 3}));
  x += 1;
  x.assign(x * 2).realize();
  Tensor row = part(x, {1});
  row.assign(row + 1);
  x.replace(x.flip(0));
  x.realize();
}

void EveryVariable() {
  const Tensor x = Floats({3}), y = Floats({3});
  const Tensor product = x * y, loss = (product.sigmoid() + x).sum();
  backward(loss);
  backward(product.sum());
  realize(List{x.grad(), y.grad(), product.grad()});
}

void SecondDerivative() {
  Tensor x = Floats({3});
  const Tensor y = (x.tanh() * x.square().exp()).sum();
  const Tensor slope = y.gradient({x})[0];
  realize(slope.square().sum().gradient({x}));
}

void ReadWithin() {
  const Tensor x = Tensor::from<float>({0, 1, 0, 2}, {2, 2});
  realize(List{masked_select(x, x > 0), nonzero(x), qr(x).q, svd(x).s});
}

TEST_F(GraphIds, AreThoseOfTheFile) {
  for (const Row& row : AllRows()) {
    SCOPED_TRACE(row.form);
    // A row may read values on its way; the results are of no interest.
    Begin(true);
    const List made = Made(row);
    session_->evaluate = false;
    if (!made.empty()) realize(made);
    End(row.form);
    if (row.gradient == Gradient::kNone) continue;
    Begin(true);
    const List gradients = GradientsOf(row);
    session_->evaluate = false;
    realize(gradients);
    End(row.form + " gradient");
  }
  for (const auto& [name, function] : Operations())
    Add("types of " + name, [&] { Promotions(function); });

  Add("optimiser SGD", [] { TwoSteps<optim::SGD>(0.1); });
  Add("optimiser SGD nesterov", [] { TwoSteps<optim::SGD>(0.1, 0.9, 0.01, true); });
  Add("optimiser SGD classic", [] { TwoSteps<optim::SGD>(0.1, 0.9, 0.0, false, true); });
  Add("optimiser LARS", [] { TwoSteps<optim::LARS>(); });
  Add("optimiser Muon", [] { TwoSteps<optim::Muon>(); });
  Add("optimiser LAMB", [] { TwoSteps<optim::LAMB>(0.1, 0.9, 0.99, 1e-6, 0.01); });
  Add("optimiser AdamW", [] { TwoSteps<optim::AdamW>(); });
  Add("optimiser Adam", [] { TwoSteps<optim::Adam>(); });

  Add("example linear", &LinearExample);
  Add("example beautiful_mnist", [] {
    const Tensor images =
        Tensor::from<uint8_t>(std::vector<uint8_t>(20 * 28 * 28, 7), {20, 1, 28, 28});
    const Tensor labels = Tensor::from<uint8_t>(std::vector<uint8_t>(20, 3));
    examples::MnistTrainer trainer(images, labels, 4);
    for (int i = 0; i < 2; ++i) trainer.Step(i == 0);
    trainer.CountRight(images, labels, 10, 5);
  });
  const examples::GptOptions gpt = {
      .vocabulary = 11, .layers = 2, .width = 16, .heads = 2, .context = 8};
  Add("example gpt", [&] {
    examples::GptTrainer trainer(Tensor::from<uint8_t>(std::vector<uint8_t>(40, 5)), gpt, 2);
    for (int i = 0; i < 2; ++i) trainer.Step();
  });
  Add("example gpt_decode", [&] {
    const examples::Gpt net(gpt);
    examples::GptDecoder decoder(net, gpt);
    for (int i = 0; i < 3; ++i) decoder.Step(Tensor::from<int64_t>({i})).realize();
  });
  Add("a captured step", &CapturedTraining);
  Add("a repeated step", &RepeatedTraining);
  Add("a norm in training", &NormInTraining);
  Add("random numbers", &RandomNumbers);
  Add("symbolic shapes", &Symbolic);
  Add("assignments", &Assignments);
  Add("gradients of everything", &EveryVariable);
  Add("a second derivative", &SecondDerivative);
  Add("values read on the way", &ReadWithin, true);

  const std::string path = test::SourceFile("tests/client/operators/graph_ids.txt");
  if (std::getenv("OUTBOARD_UPDATE") != nullptr) {
    std::ofstream out(path);
    for (const auto& [name, id] : ids_) out << id << "  " << name << "\n";
  }
  Ids wanted;
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) wanted[line.substr(66)] = line.substr(0, 64);
  EXPECT_GT(wanted.size(), 700u) << "a file is missing, or much of it";
  for (const auto& [name, id] : ids_)
    EXPECT_EQ(wanted.contains(name) ? wanted[name] : "missing", id) << name;
  for (const auto& [name, id] : wanted) EXPECT_TRUE(ids_.contains(name)) << name << " is gone";
}

// No node is written at a line of the library: neither of an operator nor of those that make it up.
TEST_F(GraphIds, GoWithTheUsersLines) {
  for (const Row& row : AllRows()) {
    SCOPED_TRACE(row.form);
    Begin(true);
    List made = Made(row);
    if (row.gradient == Gradient::kYes)
      for (const Tensor& gradient : GradientsOf(row)) made.push_back(gradient);
    for (const Tensor& tensor : made) {
      const internal::TensorState& value = *tensor.value();
      if (!value.lazy()) continue;
      for (const UOp* node : PostOrder(value.node)) {
        const At at = value.lazy_graph->LineOf(node);
        ASSERT_TRUE(absl::StrContains(at.file_name(), "tests/client/operators/"))
            << at.file_name() << ":" << at.line();
      }
    }
    Tensor::manual_seed(7);
  }
}

}  // namespace
}  // namespace outboard::operators
