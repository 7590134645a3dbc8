// Programs as parts of scripted modules, which torch saves and loads.
#include <torch/custom_class.h>
#include <torch/script.h>

#include "program.h"

namespace postern::torch {

namespace {

struct Scripted : ::torch::CustomClassHolder {
  explicit Scripted(detail::ProgramPtr p) : program(std::move(p)) {}
  detail::ProgramPtr program;
};
using ScriptedPtr = c10::intrusive_ptr<Scripted>;
using State = detail::SavedOrders;

ScriptedPtr from_state(State state) {
  std::vector<std::vector<Loaded>> orders;
  for (const auto& [order, text] : state) {
    if (order < 0 || order > 64)
      throw Error(ErrorCode::data_loss,
                  "a scripted Postern program has a derivative of order " + std::to_string(order));
    if (orders.size() <= static_cast<std::size_t>(order))
      orders.resize(static_cast<std::size_t>(order) + 1);
    orders[static_cast<std::size_t>(order)].push_back(load_text(text, "a scripted module"));
  }
  return c10::make_intrusive<Scripted>(detail::loaded(std::move(orders), std::move(state)));
}

const auto registered =
    ::torch::class_<Scripted>("postern", "Program")
        .def("run",
             [](const ScriptedPtr& self, std::vector<at::Tensor> arguments) {
               return Module(self->program).run(arguments);
             })
        .def("only",
             [](const ScriptedPtr& self, std::vector<at::Tensor> arguments) {
               return Module(self->program)(arguments);
             })
        .def_pickle([](const ScriptedPtr& self) -> State { return self->program->saved(); },
                    [](State state) { return from_state(std::move(state)); });

}  // namespace

::torch::jit::Module scripted(const Module& module, std::size_t arguments, bool list) {
  ::torch::jit::Module made("PosternProgram");
  made.register_attribute("program", c10::getCustomClassType<ScriptedPtr>(),
                          c10::IValue(c10::make_intrusive<Scripted>(module.internal())));
  std::string names;
  for (std::size_t i = 0; i < arguments; ++i)
    names += (i ? ", x" : "x") + std::to_string(i) + ": Tensor";
  std::string values;
  for (std::size_t i = 0; i < arguments; ++i) values += (i ? ", x" : "x") + std::to_string(i);
  made.define("def forward(self" + (names.empty() ? "" : ", " + names) +
              "):\n  return self.program." + (list ? "run" : "only") + "([" + values + "])\n");
  return made;
}

Module from_scripted(const ::torch::jit::Module& module) {
  return Module(module.attr("program").toCustomClass<Scripted>()->program);
}

}  // namespace postern::torch
