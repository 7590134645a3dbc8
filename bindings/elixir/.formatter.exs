[inputs: ["{mix,.formatter}.exs", "{lib,nx,test}/**/*.{ex,exs}"], line_length: 98]
