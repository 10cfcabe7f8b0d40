#include "tests/compiler/schedule_programs.h"

#include "base/check.h"
#include "client/examples/gpt.h"
#include "client/examples/mnist.h"
#include "client/ops/index/index.h"
#include "compiler/ir/encoding.h"
#include "tests/client/fake_session.h"

namespace outboard::test {
namespace {

Tensor Input(const Dims& dims) { return Tensor::zeros(dims).state_(); }
Tensor Weight(const Dims& dims) { return Tensor::zeros(dims).requires_grad_(); }
Tensor Classes(const Dims& dims) { return Tensor::zeros(dims, DType::kI32).state_(); }
int64_t Or(Size size, int64_t small, int64_t real) { return size == Size::kSmall ? small : real; }

void Realize(const std::vector<Tensor>& results) { realize(results); }

// The result weighted by an input, and the gradients of `weights`.
void ForwardBackward(const Tensor& result, const std::vector<Tensor>& weights) {
  const Tensor upstream = Input(result.shape());
  std::vector<Tensor> results = {result};
  for (Tensor& gradient : result.gradient(weights, upstream)) results.push_back(gradient);
  Realize(results);
}

void LossBackward(const Tensor& loss, const std::vector<Tensor>& weights) {
  std::vector<Tensor> results = {loss};
  for (Tensor& gradient : loss.gradient(weights)) results.push_back(gradient);
  Realize(results);
}

Dims Rows(Size size) { return {Or(size, 6, 512), Or(size, 5, 256)}; }
Dims Images(Size size) {
  return {Or(size, 3, 128), Or(size, 2, 32), Or(size, 4, 24), Or(size, 4, 24)};
}
Dims Scores(Size size) {
  return {Or(size, 2, 4), Or(size, 2, 8), Or(size, 5, 128), Or(size, 5, 128)};
}

Tensor Attend(const Tensor& q, const Tensor& k, const Tensor& v) {
  return q.matmul(k.transpose()).softmax().matmul(v);
}

examples::GptOptions GptSize(Size size, int64_t layers) {
  return {.vocabulary = Or(size, 7, 65),
          .layers = layers,
          .width = Or(size, 6, 256),
          .heads = Or(size, 2, 8),
          .context = Or(size, 4, 128)};
}

void Mnist(Size size, const std::function<void(const examples::MnistNet&, const Tensor&)>& run) {
  const TrainingMode training(true);
  const examples::MnistNet net;
  const Tensor images = Input({Or(size, 1, 128), 1, 28, 28});
  run(net, images);
}

void Train(const examples::GptOptions& options, int64_t batch, int64_t characters, DType type) {
  const Tensor text = Tensor::zeros({characters}, type).state_();
  examples::GptTrainer trainer(text, options, batch);
  trainer.Step();
}

void GptStep(Size size, int64_t layers) {
  Train(GptSize(size, layers), Or(size, 2, 4), Or(size, 50, 1000000), DType::kU8);
}

}  // namespace

Program GptStep(std::string name, const examples::GptOptions& options, int64_t batch,
                int64_t characters, DType type) {
  return {std::move(name), [=](Size) { Train(options, batch, characters, type); }};
}

Program LossGradient(std::string name, const LogitRows& logits) {
  return {std::move(name), [=](Size) {
            Tensor x = Tensor::zeros({logits.rows, logits.columns}, logits.dtype).state_();
            x.requires_grad_();
            const Tensor loss =
                x.cast(DType::kF32).sparse_categorical_crossentropy(Classes({logits.rows}));
            LossBackward(loss, {x});
          }};
}

Program SoftmaxOfRows(std::string name, const LogitRows& logits) {
  return {std::move(name), [=](Size) {
            const Tensor x = Tensor::zeros({logits.rows, logits.columns}, logits.dtype).state_();
            Realize({x.cast(DType::kF32).softmax().cast(logits.dtype)});
          }};
}

Program ArgmaxOfRows(std::string name, const LogitRows& logits) {
  return {std::move(name), [=](Size) {
            const Tensor x = Tensor::zeros({logits.rows, logits.columns}, logits.dtype).state_();
            Realize({x.argmax(1).cast(DType::kF32)});
          }};
}

Program Gpt2Step(std::string name, DType products, int64_t layers) {
  return GptStep(std::move(name),
                 {.vocabulary = 50257,
                  .layers = layers,
                  .width = 768,
                  .heads = 12,
                  .context = 1024,
                  .products = products},
                 /*batch=*/8, /*characters=*/1'000'000, DType::kI32);
}

const std::vector<Program>& Programs() {
  static const std::vector<Program> programs = {
      {"softmax", [](Size s) { Realize({Input(Rows(s)).softmax()}); }},
      {"softmax_backward",
       [](Size s) {
         const Tensor x = Weight(Rows(s));
         ForwardBackward(x.softmax(), {x});
       }},
      {"log_softmax", [](Size s) { Realize({Input(Rows(s)).log_softmax()}); }},
      {"cross_entropy",
       [](Size s) {
         const Tensor x = Weight(Rows(s));
         LossBackward(x.sparse_categorical_crossentropy(Classes({Rows(s)[0]})), {x});
       }},
      {"layer_norm",
       [](Size s) {
         Realize({Input(Rows(s)).layernorm() * Input({Rows(s)[1]}) + Input({Rows(s)[1]})});
       }},
      {"layer_norm_backward",
       [](Size s) {
         const Tensor x = Weight(Rows(s)), weight = Weight({Rows(s)[1]}),
                      bias = Weight({Rows(s)[1]});
         ForwardBackward(x.layernorm() * weight + bias, {x, weight, bias});
       }},
      {"batch_norm",
       [](Size s) {
         const TrainingMode training(true);
         const nn::BatchNorm2d norm(Images(s)[1]);
         Realize({norm(Input(Images(s)))});
       }},
      {"batch_norm_backward",
       [](Size s) {
         const TrainingMode training(true);
         const nn::BatchNorm2d norm(Images(s)[1]);
         const Tensor x = Weight(Images(s));
         ForwardBackward(norm(x), {x, norm.weight, norm.bias});
       }},
      {"variance",
       [](Size s) {
         const Tensor x = Input(Rows(s));
         Realize({x.var({1}), x.mean({1})});
       }},
      {"attention",
       [](Size s) {
         Dims dims = Scores(s);
         dims[3] = Or(s, 3, 32);
         Realize({Attend(Input(dims), Input(dims), Input(dims))});
       }},
      {"attention_backward",
       [](Size s) {
         Dims dims = Scores(s);
         dims[3] = Or(s, 3, 32);
         const Tensor q = Weight(dims), k = Weight(dims), v = Weight(dims);
         ForwardBackward(Attend(q, k, v), {q, k, v});
       }},
      {"embedding_backward",
       [](Size s) {
         const Tensor table = Weight({Or(s, 7, 1000), Or(s, 3, 64)});
         ForwardBackward(table[Classes({Or(s, 2, 8), Or(s, 4, 128)})], {table});
       }},
      {"sort", [](Size s) { Realize({sort(Input({Or(s, 40, 5000)})).values}); }},
      {"conv_chain",
       [](Size s) {
         const Tensor w1 = Input({Or(s, 8, 32), Or(s, 2, 3), 3, 3}),
                      w2 = Input({Or(s, 2, 32), Or(s, 8, 32), 3, 3}),
                      w3 = Input({Or(s, 2, 64), Or(s, 2, 32), 3, 3});
         const Tensor x = Input({Or(s, 1, 16), Or(s, 2, 3), Or(s, 8, 32), Or(s, 8, 32)});
         Realize({x.conv2d(w1).relu().conv2d(w2).relu().conv2d(w3).relu()});
       }},
      {"conv_chain_backward",
       [](Size s) {
         const Tensor w1 = Weight({Or(s, 8, 32), Or(s, 2, 3), 3, 3}),
                      w2 = Weight({Or(s, 8, 32), Or(s, 8, 32), 3, 3}),
                      w3 = Weight({Or(s, 2, 64), Or(s, 8, 32), 3, 3});
         const Tensor x = Input({Or(s, 2, 16), Or(s, 2, 3), Or(s, 12, 32), Or(s, 12, 32)});
         const Tensor y = x.conv2d(w1).relu().max_pool2d().conv2d(w2).relu();
         ForwardBackward(y.conv2d(w3), {w1, w2, w3});
       }},
      {"strided_windows_backward",  // that overlap
       [](Size s) {
         const Tensor w1 = Weight({Or(s, 4, 32), Or(s, 2, 3), 3, 3}),
                      w2 = Weight({Or(s, 2, 64), Or(s, 4, 32), 3, 3});
         const Tensor x = Input({Or(s, 1, 16), Or(s, 2, 3), Or(s, 13, 64), Or(s, 13, 64)});
         const Tensor y = x.conv2d(w1, {}, {.stride = 2, .padding = 1}).relu();
         const Tensor z = y.max_pool2d({.kernel = 3, .stride = 2, .padding = 1});
         ForwardBackward(z.conv2d(w2, {}, {.stride = 2}), {w1, w2});
       }},
      {"sgd_step",
       [](Size s) {
         const Tensor w = Weight(Rows(s));
         optim::SGD sgd({w}, 0.1, 0.9);
         (w * Input(Rows(s))).sum().backward();
         sgd.step();
       }},
      {"adamw_step",
       [](Size s) {
         const Tensor w = Weight(Rows(s)), bias = Weight({Rows(s)[1]});
         optim::AdamW adam({w, bias});
         (w * Input(Rows(s))).sum().backward();
         (bias * Input({Rows(s)[1]})).sum().backward();
         adam.step();
       }},
      {"mnist_forward",
       [](Size s) {
         Mnist(s, [](const examples::MnistNet& net, const Tensor& x) { Realize({net(x)}); });
       },
       /*has_small=*/false},
      {"mnist_forward_backward",
       [](Size s) {
         Mnist(s, [&](const examples::MnistNet& net, const Tensor& x) {
           LossBackward(net(x).sparse_categorical_crossentropy(Classes({x.shape(0)})),
                        nn::parameters(net));
         });
       },
       /*has_small=*/false},
      {"mnist_step",
       [](Size s) {
         const int64_t images = Or(s, 4, 60000);
         examples::MnistTrainer trainer(Tensor::zeros({images, 1, 28, 28}, DType::kU8).state_(),
                                        Tensor::zeros({images}, DType::kU8).state_(),
                                        Or(s, 1, 128));
         trainer.Step();
       },
       /*has_small=*/false},
      {"transformer_block",
       [](Size s) {
         const examples::GptOptions options = GptSize(s, 1);
         const examples::GptBlock block(options);
         Realize({block(Input({Or(s, 2, 4), options.context, options.width}))});
       }},
      {"transformer_block_backward",
       [](Size s) {
         const examples::GptOptions options = GptSize(s, 1);
         const examples::GptBlock block(options);
         const Tensor x = Weight({Or(s, 2, 4), options.context, options.width});
         std::vector<Tensor> weights = nn::parameters(block);
         weights.push_back(x);
         ForwardBackward(block(x), weights);
       }},
      {"gpt_step_1_layer", [](Size s) { GptStep(s, 1); }},
      {"gpt_step_2_layers", [](Size s) { GptStep(s, 2); }},
      {"gpt_step_12_layers", [](Size s) { GptStep(s, 12); }, /*has_small=*/false},
  };
  return programs;
}

const UOp* RecordProgram(Graph& graph, const Program& program, Size size,
                         std::vector<int64_t>* donated) {
  const auto session = std::make_shared<FakeSession>();
  session->evaluate = false;
  SetSession(session);
  Tensor::manual_seed(1);
  program.run(size);
  const UOp* const sink = ValueOrDie(DecodeGraph(graph, *session->last.graph));
  if (donated != nullptr) donated->assign(session->last.donate.begin(), session->last.donate.end());
  SetSession(nullptr);
  return sink;
}

}  // namespace outboard::test
