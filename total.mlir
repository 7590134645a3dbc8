// postern program 1, postern 0.1
// checksum 4b823c2a677eb280a7ad6c70eed11750
// about {"name":"main","inputs":["s32[3]"],"outputs":["f32[]"]}
// site {"kind":"call","name":"call","file":"saved-programs.cc","line":2,"function":"shop.price","attributes":{},"operands":["s32[3]"],"results":["f32[3]"],"operand_structure":"","result_structure":"*","operand_paths":[],"result_paths":[""],"effect":"pure","timeout_ns":0,"warn_after_ns":0,"vmap":"sequential","levels":[],"masked":false,"mask_size":0,"transforms":[],"async":false,"derivatives":false,"recomputed":false,"every":1,"keep_last":0}
module @main {
  func.func public @main(%0: tensor<3xi32>) -> (tensor<f32>) {
    %1 = "stablehlo.custom_call"(%0) {call_target_name = "postern_call", api_version = 4 : i32, backend_config = {id = 0 : i64, label = "call"}} : (tensor<3xi32>) -> (tensor<3xf32>)
    %2 = stablehlo.constant dense<0.000000000e+00> : tensor<f32>
    %3 = stablehlo.reduce(%1 init: %2) applies stablehlo.add across dimensions = [0] : (tensor<3xf32>, tensor<f32>) -> tensor<f32>
    return %3 : tensor<f32>
  }
}
