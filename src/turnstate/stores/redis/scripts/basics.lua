-- Numbers are doubles here, exact up to 2^53, and `..` writes 1e15 as "1e+15": these write them whole.
local call = redis.call

local function int(number)
  return string.format('%.0f', number)
end

-- Times are padded, so that they sort as text in the order of numbers.
local function moment(number)
  return string.format('%016.0f', number)
end

-- A name with its length: no other name begins like it.
local function named(text)
  return #text .. ':' .. text
end
