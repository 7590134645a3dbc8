// A compiled program asks this process for prices.
#include <postern/postern.h>

#include <iostream>
#include <map>

namespace pn = postern;

int main() {
  std::map<int, float> prices{{7, 2.5f}, {8, 4.0f}};
  auto look_up = [&](pn::View<const int> items, pn::View<float> price) {
    for (int i = 0; i < items.size(); ++i) price[i] = prices.at(items[i]);
  };
  auto total = pn::jit([&](pn::Tensor items, pn::Tensor counts) {
    pn::Tensor price = pn::call({.name = "price"}, counts.type(), look_up, items);
    return pn::sum(price * counts);
  });
  pn::Tensor counts = pn::tensor<float>({1, 2, 3});
  std::cout << "total: " << total(pn::tensor<int>({7, 8, 7}), counts).item<float>() << "\n";
  try {
    total(pn::tensor<int>({7, 8, 9}), counts).item<float>();
  } catch (const pn::CallbackError& e) {
    std::cout << e.what() << "\n";
  }
}
